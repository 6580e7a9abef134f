package meteredredis

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
)

var redisURL = flag.String("redis", "", "run the tests that need no fault on this engine, as redis://host:port/db, rather than on servers of their own; its keys that begin with the tests' names are used")

var serverPath, _ = exec.LookPath("redis-server")

// embedded says once that there is no real server.
var embedded = sync.OnceFunc(func() {
	fmt.Println("there is no redis-server here: these tests run on an embedded server, without faults, clusters and replicas")
})

// needsServer skips what an embedded or a foreign server cannot do.
func needsServer(t testing.TB) {
	t.Helper()
	if serverPath == "" || *redisURL != "" {
		t.Skip("needs a redis-server of its own")
	}
}

// connect returns a client of an engine for the test: the one of -redis, a server of the test's own, or an
// embedded one.
func connect(t testing.TB) *redis.Client {
	t.Helper()
	switch {
	case *redisURL != "":
		o, err := redis.ParseURL(*redisURL)
		if err != nil {
			t.Fatal(err)
		}
		return client(t, o)
	case serverPath == "":
		embedded()
		m := miniredis.RunT(t)
		return client(t, &redis.Options{Addr: m.Addr()})
	}
	return startServer(t).client(t)
}

func client(t testing.TB, o *redis.Options) *redis.Client {
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = 2*patience, 2*patience, 2*patience // Config.Timeout is what ends a call
	c := redis.NewClient(o)
	t.Cleanup(func() { c.Close() })
	return c
}

// A server is a redis-server process.
type server struct {
	t    testing.TB
	addr string
	args []string
	cmd  *exec.Cmd
}

// startServer starts a redis-server on a free port, which ends with the test.
func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	needsServer(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().(*net.TCPAddr)
	l.Close()
	s := &server{t: t, addr: addr.String(), args: append([]string{
		"--port", strconv.Itoa(addr.Port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", t.TempDir(),
	}, args...)}
	s.start()
	t.Cleanup(s.kill)
	return s
}

// start starts the process, and waits until it answers.
func (s *server) start() {
	s.t.Helper()
	s.cmd = exec.Command(serverPath, s.args...)
	s.cmd.Stderr = os.Stderr
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	c := redis.NewClient(&redis.Options{Addr: s.addr, MaxRetries: -1})
	defer c.Close()
	eventually(s.t, "redis-server answers", func() bool { return c.Ping(context.Background()).Err() == nil })
}

// kill ends the process as a crash does.
func (s *server) kill() {
	if s.cmd != nil {
		s.cmd.Process.Kill()
		s.cmd.Wait()
		s.cmd = nil
	}
}

// pause hangs the process until resume.
func (s *server) pause()  { s.cmd.Process.Signal(syscall.SIGSTOP) }
func (s *server) resume() { s.cmd.Process.Signal(syscall.SIGCONT) }

func (s *server) client(t testing.TB) *redis.Client {
	return client(t, &redis.Options{Addr: s.addr})
}

// eventually waits for what must come, and gives up only when it will not.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for range 12_000 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("after two minutes still not: %s", what)
}

// patience is how long a call of the store may take where a test is not of hangs: a loaded machine is no outage.
const patience = time.Minute

// limiter returns a Limiter with the test's name for a prefix, and with patience unless the test says otherwise.
func limiter(t testing.TB, c redis.UniversalClient, config Config) *Limiter {
	t.Helper()
	if config.Prefix == "" {
		config.Prefix = t.Name()
	}
	if config.Timeout == 0 {
		config.Timeout = patience
	}
	l, err := New(c, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// events keeps what an Observer is told.
type events struct {
	mu  sync.Mutex
	all []middleware.Event
	at  []time.Time
}

func (e *events) Observe(_ context.Context, event middleware.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all, e.at = append(e.all, event), append(e.at, time.Now())
}

func (e *events) count(kind middleware.EventKind) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for _, event := range e.all {
		if event.Kind == kind {
			n++
		}
	}
	return n
}

func (e *events) first(kind middleware.EventKind) (middleware.Event, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range e.all {
		if event.Kind == kind {
			return event, true
		}
	}
	return middleware.Event{}, false
}

// last is when the last one of a kind was told.
func (e *events) last(kind middleware.EventKind) (at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, event := range e.all {
		if event.Kind == kind {
			at = e.at[i]
		}
	}
	return at
}

// calls counts what a client sends.
type calls struct{ n atomic.Int64 }

func (c *calls) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *calls) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmd)
	}
}

func (c *calls) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func one() bucket.Cost { return bucket.Cost{Requests: 1} }

// take takes one request and settles it.
func take(t testing.TB, l *Limiter, key string) bucket.Grant {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	g, err := l.Acquire(ctx, key, one())
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// startCluster starts three nodes that share the slots, and returns a client of them.
func startCluster(t testing.TB) *redis.ClusterClient {
	t.Helper()
	ctx := context.Background()
	var nodes []*redis.Client
	var addrs []string
	for i := range 3 {
		s := startServer(t, "--cluster-enabled", "yes", "--cluster-config-file", fmt.Sprintf("nodes-%d.conf", i))
		c := s.client(t)
		if err := c.ClusterAddSlotsRange(ctx, i*5461, min(i*5461+5460, 16383)).Err(); err != nil {
			t.Fatal(err)
		}
		nodes, addrs = append(nodes, c), append(addrs, s.addr)
	}
	for i, c := range nodes {
		if i == 2 { // 16384 is no multiple of three
			c.ClusterAddSlots(ctx, 16383)
		}
		host, port, _ := net.SplitHostPort(addrs[0])
		if err := c.ClusterMeet(ctx, host, port).Err(); err != nil {
			t.Fatal(err)
		}
	}
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, ReadTimeout: 2 * patience, WriteTimeout: 2 * patience})
	t.Cleanup(func() { c.Close() })
	eventually(t, "the cluster is one", func() bool {
		for _, n := range nodes {
			info := n.ClusterInfo(ctx).Val()
			if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_known_nodes:3") {
				return false
			}
		}
		return c.Set(ctx, "a", 1, time.Second).Err() == nil
	})
	return c
}
