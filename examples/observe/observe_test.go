package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"gopkg.in/yaml.v3"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// emitted are the names of all that we emit, as the exporter writes them, each with its labels.
func emitted(t *testing.T) map[string][]string {
	t.Helper()
	registry := prometheus.NewRegistry()
	o, end, err := newObserver(registry, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	stack, err := middleware.New(middleware.Config{Bucket: bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 60)}}, Observer: o})
	if err != nil {
		t.Fatal(err)
	}
	watch, err := o.Watch(stack)
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Unregister()
	resp, err := (&http.Client{Transport: stack.Transport(metertest.New(metertest.Config{}).Transport())}).Get(provider)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	for _, e := range []middleware.Event{
		{Kind: middleware.Sent}, {Kind: middleware.Waited, Wait: time.Second}, {Kind: middleware.Overdue, Wait: time.Second},
		{Kind: middleware.Refused, Status: 429, Class: retryafter.RateLimited}, {Kind: middleware.Held, Class: retryafter.RateLimited},
		{Kind: middleware.Retried, Status: 502}, {Kind: middleware.Retried, Err: errors.New("reset")}, {Kind: middleware.Escalated},
		{Kind: middleware.Rerouted}, {Kind: middleware.Settled, Cost: bucket.Cost{InputTokens: 1, OutputTokens: 1}},
		{Kind: middleware.StoreDown}, {Kind: middleware.StoreUp},
	} {
		e.Key, e.Route = "k", "r"
		o.Observe(t.Context(), e)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for _, f := range families {
		labels := []string{"job", "instance"} // Prometheus adds these
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName())
			}
		}
		all[f.GetName()] = labels
		if f.GetType().String() == "HISTOGRAM" {
			all[f.GetName()+"_bucket"] = append(labels, "le")
		}
	}
	return all
}

var (
	selector = regexp.MustCompile(`\{([^}]*)\}`)
	matcher  = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)`)
	grouping = regexp.MustCompile(`\bby \(([^)]*)\)`)
	metric   = regexp.MustCompile(`\bmetered_\w+`)
	shown    = regexp.MustCompile(`\{\{ ?(?:\$labels\.)?(\w+) ?\}\}`)
)

// check checks that expr names metrics of ours, and they, in every use, labels that they have; and that legend
// shows labels that the expression leaves.
func check(t *testing.T, all map[string][]string, where, expr, legend string) {
	t.Helper()
	var labels []string
	for _, in := range selector.FindAllStringSubmatch(expr, -1) {
		for _, m := range matcher.FindAllStringSubmatch(in[1], -1) {
			labels = append(labels, m[1])
		}
	}
	var left []string
	for _, by := range grouping.FindAllStringSubmatch(expr, -1) {
		for l := range strings.SplitSeq(by[1], ",") {
			left = append(left, strings.TrimSpace(l))
		}
	}
	names := metric.FindAllString(grouping.ReplaceAllString(selector.ReplaceAllString(expr, ""), ""), -1)
	if len(names) == 0 {
		t.Errorf("%s names no metric: %s", where, expr)
	}
	for _, name := range names {
		has, ok := all[name]
		if !ok {
			t.Errorf("%s names %s, which we do not emit", where, name)
		}
		for _, l := range append(labels, left...) {
			if ok && !slices.Contains(has, l) {
				t.Errorf("%s: %s has no label %s", where, name, l)
			}
		}
	}
	for _, l := range shown.FindAllStringSubmatch(legend, -1) {
		if !slices.Contains(left, l[1]) {
			t.Errorf("%s shows the label %s, which its expression does not leave", where, l[1])
		}
	}
}

func TestTheDashboardNamesWhatWeEmit(t *testing.T) {
	all := emitted(t)
	text, err := os.ReadFile("dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		UID, Title    string
		SchemaVersion int
		Panels        []struct {
			ID      int
			Title   string
			GridPos struct{ H, W int }
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	if d.UID == "" || d.Title == "" || d.SchemaVersion == 0 || len(d.Panels) < 7 {
		t.Errorf("it is not whole: %+v", d)
	}
	ids := map[int]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.GridPos.H == 0 || p.GridPos.W == 0 || len(p.Targets) == 0 {
			t.Errorf("panel %q is not whole", p.Title)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			check(t, all, p.Title, target.Expr, target.LegendFormat)
		}
	}
}

func TestTheRulesNameWhatWeEmit(t *testing.T) {
	all := emitted(t)
	text, err := os.ReadFile("rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&r); err != nil {
		t.Fatal(err)
	}
	rules := r.Groups[0].Rules
	if len(rules) != 2 || rules[0].For != "5m" || !strings.HasSuffix(rules[0].Expr, "> 0.01") {
		t.Errorf("%+v", rules)
	}
	for _, rule := range rules {
		check(t, all, rule.Alert, rule.Expr, rule.Annotations["summary"])
	}
}

// A name or a label that is wrong is noticed.
func TestTheCheckCanFail(t *testing.T) {
	all := map[string][]string{"metered_a_total": {"metered_key"}}
	for _, expr := range []string{
		`rate(metered_b_total[5m])`, `rate(metered_a[5m])`, `metered_a_total{metered_keys="x"}`, `sum by (metered_class) (metered_a_total)`, `up`,
	} {
		tb := new(testing.T)
		check(tb, all, "it", expr, "")
		if !tb.Failed() {
			t.Errorf("%s is found right", expr)
		}
	}
}

func TestItEndsByItself(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if status := command(t.Context(), []string{"-listen", "127.0.0.1:0", "-for", "300ms"}, &stdout, &stderr); status != 0 {
		t.Errorf("status %d, stderr %q", status, stderr.String())
	}
	if !strings.Contains(stdout.String(), "/metrics") || !strings.Contains(stdout.String(), " sent, ") {
		t.Errorf("printed %q", stdout.String())
	}
}

func TestABadCommandLineEndsInStatus2(t *testing.T) {
	for _, args := range [][]string{{"now"}, {"-for", "-1s"}, {"-speed", "1"}} {
		var stdout, stderr bytes.Buffer
		if status := command(t.Context(), args, &stdout, &stderr); status != 2 || stderr.Len() == 0 {
			t.Errorf("%q: status %d, stderr %q", args, status, stderr.String())
		}
	}
}
