package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"math"
	"os"
	"text/template"
	"time"
)

//go:embed chart.svg.tmpl
var chartTemplate string

// The picture, in its own units.
const (
	chartWidth  = 960
	plotLeft    = 72.0
	plotWidth   = 850.0
	plotHeight  = 190.0
	firstPlot   = 136.0 // top of the first run's plot
	plotSpacing = 258.0 // from there to the top of the next
	topRoom     = 1.12  // of the highest bar, to the brim of a plot
)

// writeChart draws the results below each other on one scale and writes the
// picture to the file of that name.
func writeChart(name string, q quota, results ...result) error {
	picture, err := chart(q, results...)
	if err != nil {
		return err
	}
	if err := os.WriteFile(name, picture, 0o644); err != nil {
		return fmt.Errorf("fleet: the picture: %w", err)
	}
	return nil
}

// chart is the picture as SVG: for each result the calls over time, those served
// below and those refused on top of them.
func chart(q quota, results ...result) ([]byte, error) {
	t, err := template.New("chart").Parse(chartTemplate)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, layOut(q, results)); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// A drawing is what the template is given: everything in place, texts as they are
// to be read. No text comes from outside of this program, so none is escaped.
type drawing struct {
	Width, Height          int
	Left, Right, PlotWidth float64
	PlotHeight, Bottom     float64
	Subtitle, Limit        string
	Plots                  []plot
	Seconds                []tick
	End                    float64 // the axis' title
}

type plot struct {
	Name, Summary    string
	Top, Bottom, Mid float64
	Bars             []bar
	Rates            []tick
	LimitAt          float64
	DoneAt           float64
	Done, DoneAnchor string
	DoneText         float64
}

type bar struct{ X, Width, ServedY, ServedHeight, RefusedY, RefusedHeight float64 }

type tick struct {
	At    float64
	Label string
}

// layOut puts everything in its place.
func layOut(q quota, results []result) drawing {
	longest := time.Second
	for _, r := range results {
		longest = max(longest, r.makespan())
	}
	width := binWidth(longest)
	perSecond := float64(q.requests) / q.per.Seconds()
	highest := perSecond
	series := make([][]bin, len(results))
	for i, r := range results {
		series[i] = binned(r, width)
		for _, b := range series[i] {
			highest = max(highest, b.rate(b.served+b.refused, width))
		}
	}

	x := scale{length: plotWidth, most: (longest + width).Seconds()}
	y := scale{length: plotHeight, most: highest * topRoom}
	d := drawing{
		Width:      chartWidth,
		Height:     int(firstPlot + plotSpacing*float64(len(results)) - 4),
		Left:       plotLeft,
		Right:      plotLeft + plotWidth,
		PlotWidth:  plotWidth,
		PlotHeight: plotHeight,
		Subtitle:   fmt.Sprintf("The provider allows %s requests and %s tokens in %s, metered by token buckets. Both runs on one scale.", comma(q.requests), comma(q.tokens), q.time()),
		Limit:      fmt.Sprintf("the limit on requests, %g per second", perSecond),
	}
	for _, v := range ticks(x.most, 16) {
		d.Seconds = append(d.Seconds, tick{plotLeft + x.at(v), fmt.Sprintf("%g", v)})
	}
	for i, r := range results {
		top := firstPlot + plotSpacing*float64(i)
		d.Plots = append(d.Plots, placed(r, series[i], width, perSecond, top, x, y))
		d.Bottom = top + plotHeight
	}
	d.End = d.Bottom + 40
	return d
}

// placed is one run's plot, its top at that height of the picture.
func placed(r result, series []bin, width time.Duration, limit, top float64, x, y scale) plot {
	bottom := top + plotHeight
	p := plot{
		Name:    r.name,
		Summary: fmt.Sprintf("%s served, %s refused: %.1f %% wasted", comma(r.served()), comma(r.refused()), 100*r.wasted()),
		Top:     top,
		Bottom:  bottom,
		Mid:     top + plotHeight/2,
		LimitAt: bottom - y.at(limit),
		DoneAt:  plotLeft + x.at(r.makespan().Seconds()),
		Done:    fmt.Sprintf("done at %.1f s", r.makespan().Seconds()),
	}
	p.DoneAnchor, p.DoneText = "end", p.DoneAt-6
	if p.DoneAt < plotLeft+plotWidth/4 {
		p.DoneAnchor, p.DoneText = "start", p.DoneAt+6
	}
	for _, v := range ticks(y.most, 5) {
		p.Rates = append(p.Rates, tick{bottom - y.at(v), comma(int64(v))})
	}
	step := x.at(width.Seconds())
	for i, b := range series {
		served := y.at(b.rate(b.served, width))
		refused := y.at(b.rate(b.refused, width))
		p.Bars = append(p.Bars, bar{
			X:             plotLeft + float64(i)*step,
			Width:         step * 0.86,
			ServedY:       bottom - served,
			ServedHeight:  served,
			RefusedY:      bottom - served - refused,
			RefusedHeight: refused,
		})
	}
	return p
}

// A scale turns values up to most into lengths.
type scale struct{ length, most float64 }

func (s scale) at(v float64) float64 { return s.length * v / s.most }

// A bin is the calls that arrived within one bar's width of time.
type bin struct{ served, refused int }

func (b bin) rate(n int, width time.Duration) float64 { return float64(n) / width.Seconds() }

// binned counts the arrivals of r in bins of that width from its start to its end.
func binned(r result, width time.Duration) []bin {
	bins := make([]bin, r.makespan()/width+1)
	for _, ledger := range r.ledgers {
		for _, e := range ledger {
			b := &bins[min(max(int(e.At.Sub(r.began)/width), 0), len(bins)-1)]
			if e.Admitted {
				b.served++
			} else {
				b.refused++
			}
		}
	}
	return bins
}

// binWidth is a round time of which some 20 to 50 make up d.
func binWidth(d time.Duration) time.Duration {
	return time.Duration(round(d.Seconds()/40) * float64(time.Second))
}

// ticks are round values from 0 to most, at about n equal steps.
func ticks(most float64, n int) []float64 {
	step := round(most / float64(n))
	var values []float64
	for i := 0; float64(i)*step <= most; i++ {
		values = append(values, math.Round(float64(i)*step*1e9)/1e9) // 3*0.1 is 0.3 to a reader
	}
	return values
}

// round is the least number of the form 1, 2 or 5 times a power of ten that is no
// less than v.
func round(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= v*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}
