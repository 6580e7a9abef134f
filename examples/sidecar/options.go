package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/meteredhttp/meteredhttp/retryafter"
)

type options struct {
	listen       string
	upstream     *url.URL
	provider     string // what the upstream speaks; "": its host tells
	rpm, tpm     int64
	wait         time.Duration
	backup       *url.URL // nil: none
	backupModel  string
	backupHeader http.Header
	demo         bool
}

// parse reads the command line. Usage, and what is wrong, goes to stderr.
func parse(args []string, getenv func(string) string, stderr io.Writer) (options, error) {
	var o options
	var upstream, backup string
	f := flag.NewFlagSet("sidecar", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprint(stderr, "sidecar is a reverse proxy whose callers share one budget of a metered API.\n\nUsage: go run ./examples/sidecar -upstream URL [flags]\n\n")
		f.PrintDefaults()
	}
	f.StringVar(&o.listen, "listen", "127.0.0.1:8080", "`address` to listen on")
	f.StringVar(&upstream, "upstream", "", "base `URL` of the metered API; its path goes before the requests'")
	f.StringVar(&o.provider, "provider", "", "`name` of the provider that the upstream speaks like, if its host does not\ntell: openai, anthropic, gemini, ...")
	f.Int64Var(&o.rpm, "rpm", 0, "`requests` per minute that it allows; 0 for what its answers say")
	f.Int64Var(&o.tpm, "tpm", 0, "`tokens` per minute that it allows; 0 for what its answers say")
	f.DurationVar(&o.wait, "wait", 2*time.Minute, "how long a call may wait for its budget, each time that it is sent; one\nthat would wait longer goes to the backup, or is refused at once")
	f.StringVar(&backup, "backup", "", "base `URL` of an API that takes what the upstream refuses; its credential is\nin SIDECAR_BACKUP_HEADER, as \"Name: value\"")
	f.StringVar(&o.backupModel, "backup-model", "", "`name` to put into the field \"model\" of what goes to the backup")
	f.BoolVar(&o.demo, "demo", false, "show it with providers of its own, and end")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	err := o.fill(upstream, backup, getenv("SIDECAR_BACKUP_HEADER"))
	if err == nil {
		err = o.validate(f)
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
	}
	return o, err
}

func (o *options) fill(upstream, backup, backupHeader string) (err error) {
	if upstream != "" {
		if o.upstream, err = baseURL(upstream); err != nil {
			return fmt.Errorf("sidecar: -upstream: %w", err)
		}
	}
	if backup != "" {
		if o.backup, err = baseURL(backup); err != nil {
			return fmt.Errorf("sidecar: -backup: %w", err)
		}
	}
	if backupHeader != "" && !o.demo {
		if backup == "" {
			return errors.New("sidecar: SIDECAR_BACKUP_HEADER without -backup")
		}
		name, value, ok := strings.Cut(backupHeader, ":")
		if name, value = strings.TrimSpace(name), strings.TrimSpace(value); !ok || !headerName(name) || !headerValue(value) {
			return errors.New(`sidecar: SIDECAR_BACKUP_HEADER is not of the form "Name: value"`) // it is a secret
		}
		o.backupHeader = http.Header{http.CanonicalHeaderKey(name): {value}}
	}
	return nil
}

// baseURL parses a URL to which the paths of requests are added.
func baseURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return nil, err
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("%q does not begin with http:// or https://", s)
	case u.Hostname() == "":
		return nil, fmt.Errorf("%q names no host", s)
	case !utf8.ValidString(u.Host) || strings.ContainsFunc(u.Host, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return nil, fmt.Errorf("%q names a host that cannot be", s)
	case u.User != nil:
		return nil, errors.New("credentials come from the callers, not from the URL")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, fmt.Errorf("%q has more than a path", s)
	}
	return u, nil
}

func (o *options) validate(f *flag.FlagSet) error {
	set := map[string]bool{}
	f.Visit(func(f *flag.Flag) { set[f.Name] = true })
	switch {
	case f.NArg() > 0:
		return fmt.Errorf("sidecar: unexpected argument %q: there are only flags", f.Arg(0))
	case o.demo && len(set) > 1:
		return errors.New("sidecar: -demo goes alone: it has limits and providers of its own")
	case o.demo:
		return nil
	case o.upstream == nil:
		return errors.New("sidecar: -upstream is missing: the base URL of the metered API")
	case o.rpm < 0:
		return fmt.Errorf("sidecar: -rpm is %d, must not be negative", o.rpm)
	case o.tpm < 0:
		return fmt.Errorf("sidecar: -tpm is %d, must not be negative", o.tpm)
	case o.wait <= 0:
		return fmt.Errorf("sidecar: -wait is %v, must be positive", o.wait)
	case reaches(o.upstream, o.listen):
		return fmt.Errorf("sidecar: -upstream is the sidecar itself, %s", o.listen)
	case o.backup != nil && reaches(o.backup, o.listen):
		return fmt.Errorf("sidecar: -backup is the sidecar itself, %s", o.listen)
	case o.backup != nil && sameBase(o.backup, o.upstream) && o.backupModel == "":
		return errors.New("sidecar: -backup is -upstream again: a backup has a quota of its own")
	case o.backup == nil && o.backupModel != "":
		return errors.New("sidecar: -backup-model without -backup")
	}
	if err := o.reader().Validate(); err != nil {
		return fmt.Errorf("sidecar: -provider: %w", err)
	}
	_, port, err := net.SplitHostPort(o.listen)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("sidecar: -listen is %q, must be host:port", o.listen)
	}
	return nil
}

// reader reads what the upstream's answers say.
func (o *options) reader() retryafter.Reader {
	if o.provider == "" {
		return retryafter.Reader{}
	}
	return retryafter.Reader{Hosts: map[string]string{o.upstream.Host: o.provider}}
}
