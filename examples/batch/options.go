package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
)

type options struct {
	jobs, journal, results string
	url                    string
	header                 http.Header // from the environment
	rpm, tpm, rpd          int64
	burst                  time.Duration
	headroom               float64
	workers                int
	latency                time.Duration // 0: not said
	idempotent, resend     bool
	plan, demo             bool
}

// defaultLatency is how long a call is taken to last where nobody knows better.
const defaultLatency = time.Second

// parse reads the command line. Usage, and what is wrong, goes to stderr.
func parse(args []string, getenv func(string) string, stderr io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("batch", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprint(stderr, "batch sends a file of jobs to a metered API, says beforehand how long that takes,\nand resumes where it was interrupted.\n\nUsage: go run ./examples/batch -jobs FILE -url URL [flags]\n\n")
		f.PrintDefaults()
	}
	f.StringVar(&o.jobs, "jobs", "", "`file` of jobs: CSV with the columns id, tokens, output_tokens, body; or\nJSONL, if its name ends so")
	f.StringVar(&o.url, "url", "", "`URL` that each job is posted to; a header is in BATCH_HEADER, as\n\"Name: value\"")
	f.Int64Var(&o.rpm, "rpm", 0, "`requests` per minute that it allows; 0 for what its answers say")
	f.Int64Var(&o.tpm, "tpm", 0, "`tokens` per minute that it allows; 0 for what its answers say")
	f.Int64Var(&o.rpd, "rpd", 0, "`requests` per day that it allows; 0 for no such limit")
	f.DurationVar(&o.burst, "burst", time.Minute, "how much of a minute's limit may go at once, as a `time`")
	f.Float64Var(&o.headroom, "headroom", middleware.DefaultHeadroom, "`share` of the limits that is used, above 0 and at most 1")
	f.IntVar(&o.workers, "workers", 20, "`number` of calls at a time")
	f.DurationVar(&o.latency, "latency", 0, "`time` of one call, for the estimate (default 1s, or as the journal has it)")
	f.StringVar(&o.journal, "journal", "", "`file` of what is done (default the jobs' name and .journal)")
	f.StringVar(&o.results, "results", "", "`file` for the answers (default the jobs' name and .results.jsonl)")
	f.BoolVar(&o.idempotent, "idempotent", false, "send an Idempotency-Key, which the server is known to honour")
	f.BoolVar(&o.resend, "resend", false, "send again what was sent and not answered; it may be carried out twice")
	f.BoolVar(&o.plan, "plan", false, "print the estimate, and send nothing")
	f.BoolVar(&o.demo, "demo", false, "show it with a provider of its own, and end")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	err := o.fill(getenv("BATCH_HEADER"))
	if err == nil {
		err = o.validate(f)
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
	}
	return o, err
}

func (o *options) fill(header string) error {
	if o.journal == "" {
		o.journal = o.jobs + ".journal"
	}
	if o.results == "" {
		o.results = o.jobs + ".results.jsonl"
	}
	if header == "" {
		return nil
	}
	name, value, ok := strings.Cut(header, ":")
	if name = strings.TrimSpace(name); !ok || name == "" || strings.ContainsAny(name, " \r\n") || strings.ContainsAny(value, "\r\n") {
		return errors.New(`batch: BATCH_HEADER is not of the form "Name: value"`) // it is a secret
	}
	o.header = http.Header{http.CanonicalHeaderKey(name): {strings.TrimSpace(value)}}
	return nil
}

func (o *options) validate(f *flag.FlagSet) error {
	set := 0
	f.Visit(func(*flag.Flag) { set++ })
	switch {
	case f.NArg() > 0:
		return fmt.Errorf("batch: unexpected argument %q: there are only flags", f.Arg(0))
	case o.demo && set > 1:
		return errors.New("batch: -demo goes alone: it has jobs and a provider of its own")
	case o.demo:
		return nil
	case o.jobs == "":
		return errors.New("batch: -jobs is missing: the file of jobs")
	case o.url == "" && !o.plan:
		return errors.New("batch: -url is missing: where each job is posted to")
	case o.rpm < 0 || o.tpm < 0 || o.rpd < 0:
		return errors.New("batch: -rpm, -tpm and -rpd must not be negative")
	case o.burst <= 0 || o.burst > time.Minute:
		return fmt.Errorf("batch: -burst is %v, must be above 0 and at most a minute", o.burst)
	case !(o.headroom > 0 && o.headroom <= 1):
		return fmt.Errorf("batch: -headroom is %v, must be above 0 and at most 1", o.headroom)
	case o.workers < 1:
		return fmt.Errorf("batch: -workers is %d, must be at least 1", o.workers)
	case o.latency < 0:
		return fmt.Errorf("batch: -latency is %v, must not be negative", o.latency)
	case o.jobs == o.journal || o.jobs == o.results || o.journal == o.results:
		return errors.New("batch: -jobs, -journal and -results must be three files")
	}
	if o.url == "" {
		return nil
	}
	u, err := url.Parse(o.url)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return fmt.Errorf("batch: -url is %q, must be http:// or https:// and a host", o.url)
	}
	return nil
}

// limits are what the flags say that the API allows.
func (o *options) limits() []bucket.Limit {
	var limits []bucket.Limit
	minute := func(u bucket.Unit, amount int64) {
		if amount > 0 {
			at := max(int64(float64(amount)*o.burst.Seconds()/60), 1)
			limits = append(limits, bucket.Limit{Unit: u, Amount: amount, Per: time.Minute, Burst: at})
		}
	}
	minute(bucket.Requests, o.rpm)
	minute(bucket.Tokens, o.tpm)
	if o.rpd > 0 {
		limits = append(limits, bucket.Limit{Unit: bucket.Requests, Amount: o.rpd, Per: 24 * time.Hour})
	}
	return limits
}
