package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// An engine is the store: a redis-server of ours, or somebody else's.
type engine struct {
	url  string
	path string // of the redis-server; "" if it is somebody else's
	port int
	dir  string
	cmd  *exec.Cmd
}

// findEngine returns the engine of a URL, or starts one.
func findEngine(ctx context.Context, url string) (*engine, error) {
	if url != "" {
		if _, err := redis.ParseURL(url); err != nil {
			return nil, fmt.Errorf("-redis: %w", err)
		}
		return &engine{url: url}, nil
	}
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, errors.New("there is no redis-server on this machine; install one, or name an engine with -redis URL")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	dir, err := os.MkdirTemp("", "metered-redis-")
	if err != nil {
		return nil, err
	}
	e := &engine{url: fmt.Sprintf("redis://127.0.0.1:%d/0", port), path: path, port: port, dir: dir}
	return e, e.start(ctx)
}

// own reports whether the engine may be killed.
func (e *engine) own() bool { return e.path != "" }

// start starts our redis-server and waits until it answers.
func (e *engine) start(ctx context.Context) error {
	e.cmd = exec.Command(e.path, "--port", strconv.Itoa(e.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", e.dir)
	if err := e.cmd.Start(); err != nil {
		return fmt.Errorf("redis-server: %w", err)
	}
	client := redis.NewClient(&redis.Options{Addr: fmt.Sprintf("127.0.0.1:%d", e.port)})
	defer client.Close()
	for ctx.Err() == nil {
		if client.Ping(ctx).Err() == nil {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return ctx.Err()
}

// kill ends our redis-server as a crash does.
func (e *engine) kill() {
	if e.cmd != nil {
		e.cmd.Process.Kill()
		e.cmd.Wait()
		e.cmd = nil
	}
}

// close ends it for good.
func (e *engine) close() {
	e.kill()
	if e.dir != "" {
		os.RemoveAll(e.dir)
	}
}
