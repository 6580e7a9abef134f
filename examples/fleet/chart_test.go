package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestThePictureIsWellFormedAndKeepsInsideItsFrame(t *testing.T) {
	for _, c := range []struct {
		served, refused int
		over            time.Duration
	}{
		{800, 900, 13 * time.Second},
		{1, 0, 250 * time.Millisecond},
		{0, 0, 0},
		{5, 5000, 90 * time.Second},
		{10_000, 0, time.Hour},
	} {
		t.Run(fmt.Sprint(c.served, c.refused, c.over), func(t *testing.T) {
			svg, err := chart(raceQuota, fabricated("naive", c.served, c.refused, c.over), fabricated("paced", c.served, 0, c.over/2))
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range elements(t, svg) {
				for name, most := range map[string]float64{"x": chartWidth, "width": chartWidth, "y": 700, "height": 700} {
					text, ok := e[name]
					if !ok {
						continue
					}
					if v, err := strconv.ParseFloat(text, 64); err != nil || v < 0 || v > most {
						t.Errorf("%s=%q: %v", name, text, err)
					}
				}
			}
			for _, want := range []string{"<title", ">served<", ">refused<", ">naive<", ">paced<", "requests per second", "seconds since"} {
				if !bytes.Contains(svg, []byte(want)) {
					t.Errorf("no %s", want)
				}
			}
		})
	}
}

// The bars of a run add up to its calls, and a bar of the one run is as long as
// one of the other that stands for as many.
func TestBothRunsAreOnOneScale(t *testing.T) {
	naive, paced := fabricated("naive", 400, 600, 10*time.Second), fabricated("paced", 400, 0, 12*time.Second)
	d := layOut(raceQuota, []result{naive, paced})
	lengths := func(p plot) (served, refused float64) {
		for _, b := range p.Bars {
			served += b.ServedHeight
			refused += b.RefusedHeight
		}
		return served, refused
	}
	served, refused := lengths(d.Plots[0])
	alone, none := lengths(d.Plots[1])
	if none != 0 {
		t.Errorf("the paced run has refusals of length %v", none)
	}
	if math.Abs(served-alone) > 1e-6 {
		t.Errorf("400 served calls are %.3f long in one run and %.3f in the other", served, alone)
	}
	if math.Abs(refused-1.5*served) > 1e-6 {
		t.Errorf("600 refused calls are %.3f long, 400 served ones %.3f", refused, served)
	}
	if a, b := d.Plots[0].Bars[0].Width, d.Plots[1].Bars[0].Width; a != b {
		t.Errorf("bars are %v and %v wide", a, b)
	}
}

func TestBarsStandOnTopOfEachOther(t *testing.T) {
	d := layOut(raceQuota, []result{fabricated("naive", 400, 600, 10*time.Second)})
	for i, b := range d.Plots[0].Bars {
		if math.Abs(b.ServedY+b.ServedHeight-d.Plots[0].Bottom) > 1e-6 || math.Abs(b.RefusedY+b.RefusedHeight-b.ServedY) > 1e-6 {
			t.Errorf("bar %d is %+v", i, b)
		}
	}
}

// The labels of an axis have room: ticks are no more than 17 on 850 units, and no
// label is longer than five digits.
func TestTicksAreRoundAndFew(t *testing.T) {
	for _, most := range []float64{0.6, 1, 9.9, 14.5, 59, 61, 999, 3600} {
		values := ticks(most, 16)
		if len(values) < 6 || len(values) > 17 || values[0] != 0 || values[len(values)-1] > most {
			t.Errorf("up to %v: %v", most, values)
		}
		for _, v := range values {
			if label := fmt.Sprintf("%g", v); len(label) > 5 {
				t.Errorf("up to %v: a label %q", most, label)
			}
		}
	}
}

func TestRound(t *testing.T) {
	for v, want := range map[float64]float64{0.03: 0.05, 0.1: 0.1, 0.11: 0.2, 1: 1, 3: 5, 5: 5, 5.1: 10, 120: 200} {
		if got := round(v); math.Abs(got-want) > 1e-9 {
			t.Errorf("round(%v) is %v, want %v", v, got, want)
		}
	}
}

// elements are the attributes of all elements of a well-formed document.
func elements(t *testing.T, document []byte) []map[string]string {
	t.Helper()
	var all []map[string]string
	d := xml.NewDecoder(bytes.NewReader(document))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("not well-formed: %v", err)
		}
		if e, ok := token.(xml.StartElement); ok {
			attributes := map[string]string{}
			for _, a := range e.Attr {
				if strings.ContainsAny(a.Value, "NI") && (strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf")) {
					t.Errorf("%s %s=%q", e.Name.Local, a.Name.Local, a.Value)
				}
				attributes[a.Name.Local] = a.Value
			}
			all = append(all, attributes)
		}
	}
}
