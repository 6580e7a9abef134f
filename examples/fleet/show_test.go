package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

// inMemory is a network without sockets, for virtual time.
func inMemory(_ int, providers ...*metertest.Provider) (urls []string, base http.RoundTripper, stop func(), err error) {
	hosts := metertest.Hosts{}
	for i, p := range providers {
		host := fmt.Sprintf("api%d.test", i)
		hosts[host] = p
		urls = append(urls, "http://"+host)
	}
	return urls, hosts.Transport(), func() {}, nil
}

// The whole demonstration at its full size, on virtual time.
func TestTheDemonstrationKeepsItsPromises(t *testing.T) {
	for _, seed := range []uint64{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			d := demonstration{
				options: options{jobs: 800, workers: 100, seed: seed},
				network: inMemory,
				stdout:  &out,
			}
			began := time.Now()
			if err := d.show(t.Context()); err != nil {
				t.Errorf("seed %d: %v\n%s", seed, err, out.String())
			}
			if took := time.Since(began); took > 60*time.Second {
				t.Errorf("seed %d: it took %v", seed, took)
			}
		})
	}
}

func TestThePacedClientIsRefusedNothingAndTheNaiveOneMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage{network: inMemory, workers: 100, screen: screen{out: new(bytes.Buffer)}}
		d, jobs := demonstration{}, newBatch(800, 1)
		least := leastMakespan(raceQuota, jobs, 100)
		for _, c := range []struct {
			run                run
			wasteFrom, wasteTo float64
			longest            float64
		}{
			{d.naive(jobs), 0.4, 0.8, 1.15},
			{d.paced(jobs), 0, 0, 1.16},
		} {
			r, err := s.run(t.Context(), c.run)
			if err != nil {
				t.Fatal(err)
			}
			if n, why := r.lost(); n > 0 || r.served() != len(jobs) {
				t.Errorf("%s: %d served, %d lost: %v", r.name, r.served(), n, why)
			}
			if w := r.wasted(); w < c.wasteFrom || w > c.wasteTo {
				t.Errorf("%s: %.3f wasted", r.name, w)
			}
			if ratio := r.makespan().Seconds() / least.Seconds(); ratio < 1 || ratio > c.longest {
				t.Errorf("%s: %.3f of the least makespan", r.name, ratio)
			}
		}
	})
}

func TestTheBackupTakesOverWhenThePrimaryDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage{network: inMemory, workers: 100, screen: screen{out: new(bytes.Buffer)}}
		jobs := newBatch(300, 1)
		f, err := s.failover(t.Context(), failoverQuota, jobs, nil)
		if err != nil {
			t.Fatal(err)
		}
		if n, why := f.lost(); n > 0 {
			t.Errorf("%d lost: %v", n, why)
		}
		primary, backup := f.at(0), f.at(1)
		if primary.before+backup.after != len(jobs) || primary.before < len(jobs)/2 || primary.after != 0 || backup.before != 0 {
			t.Errorf("primary %+v, backup %+v", primary, backup)
		}
		if primary.refused == 0 {
			t.Error("the primary refused nothing when it was dead")
		}
		// Every worker has a call under way at any time.
		if moved := f.moved(); moved < 50 || moved > 100 {
			t.Errorf("%d calls moved over", moved)
		}
		// One wait of a second and its jitter, and two round trips.
		if took, ok := f.switched(); !ok || took < time.Second || took > 2*time.Second {
			t.Errorf("switched after %v, %v", took, ok)
		}
	})
}

func TestAFailoverThatDidNotHappenSaysSo(t *testing.T) {
	f := failover{result: fabricated("third", 3, 0, time.Second)}
	f.ledgers = append(f.ledgers, nil)
	var out strings.Builder
	f.write(&out)
	if !strings.Contains(out.String(), "The backup had nothing to do.") {
		t.Errorf("it says\n%s", out.String())
	}
}

func TestVerdict(t *testing.T) {
	good := fabricated("paced", 990, 10, time.Second)
	bad := fabricated("paced", 989, 11, time.Second)
	losing := func(name string) result {
		r := fabricated(name, 990, 10, time.Second)
		r.outcomes[7].err = errors.New("gone")
		return r
	}
	for _, c := range []struct {
		name            string
		paced, failover result
		want            string
	}{
		{"nothing wrong", good, fabricated("third", 10, 10, time.Second), ""},
		{"too much wasted", bad, good, "wasted 1.1 %"},
		{"a paced job lost", losing("paced"), good, "1 jobs of the paced run were lost: gone"},
		{"a job of the third run lost", good, losing("third"), "1 jobs of the third run were lost: gone"},
	} {
		err := verdict(c.paced, c.failover)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// A network that is down is an error, and so is a client that cannot be built.
func TestARunThatCannotStartSaysWhy(t *testing.T) {
	down := errors.New("down")
	s := stage{
		network: func(int, ...*metertest.Provider) ([]string, http.RoundTripper, func(), error) {
			return nil, nil, nil, down
		},
		workers: 1,
	}
	if _, err := s.run(t.Context(), run{}); !errors.Is(err, down) {
		t.Errorf("network: %v", err)
	}
	s.network = inMemory
	_, err := s.run(t.Context(), run{client: func([]string, http.RoundTripper) (http.RoundTripper, error) {
		return nil, down
	}})
	if !errors.Is(err, down) {
		t.Errorf("client: %v", err)
	}
}
