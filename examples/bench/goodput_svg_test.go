package bench

import (
	"encoding/xml"
	"fmt"
	"html"
	"io"
	"strings"
	"testing"
	"time"
)

// svg draws the table as a heat table: in each cell the makespan over the least, and below it the wasted
// calls. It has a ground of its own, so that it can be read on light pages and on dark ones.
func (g *grid) svg() string {
	const left, top, width, height = 310, 92, 84, 40
	w, h := left+width*len(g.servers)+16, top+height*len(g.names)+44
	var b strings.Builder
	text := func(x, y int, style, content string) {
		fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\" %s>%s</text>\n", x, y, style, html.EscapeString(content))
	}
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" aria-labelledby=\"title\" font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\" font-size=\"13\" fill=\"#222\">\n", w, h)
	fmt.Fprintf(&b, "<title id=\"title\">Makespan over the least possible, and wasted calls, of each client at each server</title>\n")
	fmt.Fprintf(&b, "<rect width=\"%d\" height=\"%d\" rx=\"6\" fill=\"#fff\"/>\n", w, h)
	text(16, 28, `font-size="18" font-weight="bold"`, "One batch, seven servers that meter in seven ways")
	text(16, 48, `fill="#555"`, "above: makespan over the least possible; below: wasted calls, refused of all")
	for i, s := range g.servers {
		text(left+i*width+width/2, top-10, `text-anchor="middle" font-weight="bold"`, s.name)
	}
	for k, name := range g.names {
		y, weight := top+k*height, ""
		if name == us.name {
			weight = ` font-weight="bold"`
		}
		text(16, y+height/2+4, weight, name)
		for i, o := range g.rows[k] {
			x := left + i*width
			fmt.Fprintf(&b, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"3\" fill=\"%s\"/>\n", x+1, y+1, width-2, height-2, o.shade())
			text(x+width/2, y+17, `text-anchor="middle"`+weight, fmt.Sprintf("%.3f", o.over()))
			wasted := fmt.Sprintf("%.1f %%", 100*o.wasted())
			if o.lost > 0 {
				wasted += fmt.Sprintf(", %d lost", o.lost)
			}
			text(x+width/2, y+32, `text-anchor="middle" font-size="11"`, wasted)
		}
	}
	x := 16
	for _, l := range []struct{ fill, meaning string }{
		{green, "within 1.05 and 0.7 %"}, {amber, "within 1.25 and 5 %"}, {red, "beyond"},
	} {
		fmt.Fprintf(&b, "<rect x=\"%d\" y=\"%d\" width=\"14\" height=\"14\" rx=\"3\" fill=\"%s\"/>\n", x, h-28, l.fill)
		text(x+20, h-16, "", l.meaning)
		x += 180
	}
	return b.String() + "</svg>\n"
}

// The shades of a cell.
const green, amber, red = "#bfe3c0", "#f6e3a8", "#f0b6a6"

// shade is green where both targets are kept, amber where one is missed by a little, else red.
func (o outcome) shade() string {
	switch over, wasted := o.over(), o.wasted(); {
	case o.lost == 0 && over <= 1.05 && wasted <= 0.007:
		return green
	case o.lost == 0 && over <= 1.25 && wasted <= 0.05:
		return amber
	}
	return red
}

func TestTheGoodputDrawingIsXML(t *testing.T) {
	g := grid{servers: sevenServers(600, idleTPM, 0)}
	row := make([]outcome, len(g.servers))
	for i := range row {
		row[i] = outcome{makespan: time.Minute, least: time.Second, hits: 10, refused: i, lost: i}
	}
	g.add(`openai-go's <own> & "endless"`, row)
	d := xml.NewDecoder(strings.NewReader(g.svg()))
	cells := 0
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == "rect" {
			cells++
		}
	}
	if want := len(row) + 4; cells != want { // the ground and the legend too
		t.Errorf("%d rectangles, want %d", cells, want)
	}
}
