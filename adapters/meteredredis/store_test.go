package meteredredis

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
)

func TestSomethingElseUnderAKey(t *testing.T) {
	c := connect(t)
	told := new(events)
	l := limiter(t, c, Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 60000)}, Observer: told})
	name := nameOf(t.Name(), "bad")
	c.Set(context.Background(), name, "not a hash", 0)
	take(t, l, "bad").Settle(one())
	take(t, l, "good").Settle(one())
	eventually(t, "it is told", func() bool { return told.count(middleware.StoreDown) == 1 })
	if e, _ := told.first(middleware.StoreDown); e.Key != "bad" || !strings.Contains(e.Err.Error(), "WRONGTYPE") {
		t.Errorf("%+v", e)
	}
	if l.down.Load() != nil {
		t.Error("one bad key has taken the whole store down")
	}
	c.Del(context.Background(), name)
	eventually(t, "it is there again", func() bool { return told.count(middleware.StoreUp) == 1 })
	take(t, l, "bad").Settle(one())
}

func TestNewSaysWhatItCanKnow(t *testing.T) {
	s := startServer(t)
	limits := []bucket.Limit{bucket.PerMinute(bucket.Requests, 60)}
	c := s.client(t)
	if err := c.Do(context.Background(), "acl", "setuser", "poor", "on", ">x", "~*", "+@all", "-@scripting").Err(); err != nil {
		t.Fatal(err)
	}
	poor := client(t, &redis.Options{Addr: s.addr, Username: "poor", Password: "x"})
	if _, err := New(poor, Config{Limits: limits, Timeout: patience}); err == nil || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("without scripts: %v", err)
	}
	host, port, _ := net.SplitHostPort(s.addr)
	replica := startServer(t, "--replicaof", host, port)
	rc := replica.client(t)
	eventually(t, "the replica is in step", func() bool {
		return strings.Contains(rc.Info(context.Background(), "replication").Val(), "master_link_status:up")
	})
	if _, err := New(rc, Config{Limits: limits, Timeout: patience}); err == nil || !strings.Contains(err.Error(), "READONLY") {
		t.Errorf("a replica: %v", err)
	}
	wrong := client(t, &redis.Options{Addr: s.addr, Username: "poor", Password: "wrong"})
	if _, err := New(wrong, Config{Limits: limits, Timeout: patience}); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("a wrong password: %v", err)
	}
	for name, config := range map[string]Config{
		"a limit":  {Limits: []bucket.Limit{{Amount: -1, Per: 1}}},
		"timeout":  {Timeout: -1},
		"policy":   {OnStoreDown: 9},
		"prefix":   {Prefix: "a{b"},
		"headroom": {Headroom: 2},
	} {
		if _, err := New(c, config); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := New(nil, Config{}); err == nil {
		t.Error("without a client: no error")
	}
}

// field report J2: on a cluster, every decision is in one slot, and survives the loss of the script.
func TestCluster(t *testing.T) {
	c := startCluster(t)
	l := limiter(t, c, Config{Timeout: 5 * time.Second, Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 600), bucket.PerMinute(bucket.Tokens, 100000)}})
	keys := []string{"a", "a{b}c", "}{", "", strings.Repeat("k", 10<<10)}
	for _, key := range keys {
		take(t, l, key).Refused(0)
	}
	if o := l.down.Load(); o != nil {
		t.Fatal(o.reason)
	}
	c.ForEachMaster(context.Background(), func(ctx context.Context, node *redis.Client) error { return node.ScriptFlush(ctx).Err() })
	for _, key := range keys {
		take(t, l, key).Settle(one())
	}
	if o := l.down.Load(); o != nil {
		t.Fatal(o.reason)
	}
}

// A failover to a replica: the budget goes on, or is declared anew.
func TestFailoverToAReplica(t *testing.T) {
	first := startServer(t)
	host, port, _ := net.SplitHostPort(first.addr)
	second := startServer(t, "--replicaof", host, port)
	rc := second.client(t)
	eventually(t, "the replica is in step", func() bool {
		return strings.Contains(rc.Info(context.Background(), "replication").Val(), "master_link_status:up")
	})
	var addr atomic.Pointer[string]
	addr.Store(&first.addr)
	c := client(t, &redis.Options{Addr: "whoever leads", Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", *addr.Load())
	}})
	const rate, burst = 300, 30
	told := new(events)
	a := new(admissions)
	l := limiter(t, c, Config{Observer: told, Processes: 1,
		Limits: []bucket.Limit{{Unit: bucket.Requests, Amount: rate, Per: time.Second, Burst: burst}}})
	stop := make(chan struct{})
	wait := load(t, l, "k", 8, a, stop)
	more := func(n int) {
		t.Helper()
		before := a.count()
		eventually(t, "calls leave", func() bool { return a.count() >= before+n })
	}
	more(150)
	first.kill()
	more(60)
	rc.Do(context.Background(), "replicaof", "no", "one")
	addr.Store(&second.addr)
	eventually(t, "the new one is used", func() bool { return told.count(middleware.StoreUp) == 1 })
	more(90)
	close(stop)
	wait()
	a.within(t, burst, rate, 0) // it was alone, and knew all
}
