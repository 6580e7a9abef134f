package dashboard

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
)

const (
	// mostViewers may watch at a time.
	mostViewers = 64
	// every is how often they are told.
	every = time.Second
	// slot is how many views go by from one with histories to the next: a slot of a history is ten seconds.
	slot = 5
	// patience is how long a viewer may take none of what he is told: then he makes room for another.
	patience = 10 * time.Second
)

// A feed tells all who watch the same. Its one goroutine lives while somebody does.
type feed struct {
	look func() view

	mu       sync.Mutex
	viewers  map[chan []byte]bool
	running  bool
	latest   []byte // what those who come are told first, histories included
	rendered time.Time
}

func newFeed(look func() view) *feed {
	return &feed{look: look, viewers: map[chan []byte]bool{}}
}

// serve tells one viewer until he goes.
func (f *feed) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	if r.Method == http.MethodHead {
		h.Set("Content-Type", "text/event-stream")
		return
	}
	news := make(chan []byte, 1)
	if !f.join(news) {
		h.Set("Retry-After", "5")
		http.Error(w, fmt.Sprintf("%d watch already", mostViewers), http.StatusServiceUnavailable)
		return
	}
	defer f.leave(news)
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	out := http.NewResponseController(w)
	send := func(text []byte) error {
		out.SetWriteDeadline(time.Now().Add(patience)) // instead of a server's WriteTimeout, which is for answers that end
		if _, err := fmt.Fprintf(w, "data: %s\n\n", text); err != nil {
			return err
		}
		return out.Flush()
	}
	if _, err := fmt.Fprint(w, "retry: 1000\n\n"); err != nil {
		return
	}
	if send(f.first()) != nil {
		return
	}
	for {
		select {
		case text := <-news:
			if send(text) != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

// first is the whole view, which is made anew no oftener than any other, however many come.
func (f *feed) first() []byte {
	f.mu.Lock()
	text := f.latest
	fresh := time.Since(f.rendered) < every
	f.mu.Unlock()
	if fresh {
		return text
	}
	text = f.render(true)
	f.mu.Lock()
	f.latest, f.rendered = text, time.Now()
	f.mu.Unlock()
	return text
}

// render is a view as it is sent; histories change seldom and are most of it.
func (f *feed) render(histories bool) []byte {
	v := f.look()
	if !histories {
		for i := range v.Keys {
			v.Keys[i].History = nil
		}
	}
	text, _ := json.Marshal(v) // which cannot fail: every number in it is finite
	return text
}

func (f *feed) join(news chan []byte) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.viewers) >= mostViewers {
		return false
	}
	f.viewers[news] = true
	if !f.running {
		f.running = true
		go f.run()
	}
	return true
}

func (f *feed) leave(news chan []byte) {
	f.mu.Lock()
	delete(f.viewers, news)
	f.mu.Unlock()
}

// run tells the viewers until there are none.
func (f *feed) run() {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 1; ; n++ {
		<-tick.C
		f.mu.Lock()
		f.running = len(f.viewers) > 0
		over := !f.running
		f.mu.Unlock()
		if over {
			return
		}
		text := f.render(n%slot == 0)
		f.mu.Lock()
		for news := range f.viewers {
			select {
			case news <- text:
			default: // a slow viewer sees the next one
			}
		}
		f.mu.Unlock()
	}
}
