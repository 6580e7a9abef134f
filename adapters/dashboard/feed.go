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
	// slot is how many views go by between two with histories: a slot of a history is ten seconds.
	slot = 10
)

// A feed tells all who watch the same. Its one goroutine lives while somebody does.
type feed struct {
	look func() view

	mu      sync.Mutex
	viewers map[chan []byte]bool
	running bool
}

func newFeed(look func() view) *feed {
	return &feed{look: look, viewers: map[chan []byte]bool{}}
}

// serve tells one viewer until he goes.
func (f *feed) serve(w http.ResponseWriter, r *http.Request) {
	news := make(chan []byte, 1)
	if !f.join(news) {
		w.Header().Set("Retry-After", "5")
		http.Error(w, fmt.Sprintf("%d watch already", mostViewers), http.StatusServiceUnavailable)
		return
	}
	defer f.leave(news)
	out := http.NewResponseController(w)
	out.SetWriteDeadline(time.Time{}) // a server's WriteTimeout is for answers that end
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	if r.Method == http.MethodHead {
		return
	}
	send := func(text []byte) error {
		if _, err := fmt.Fprintf(w, "data: %s\n\n", text); err != nil {
			return err
		}
		return out.Flush()
	}
	if _, err := fmt.Fprint(w, "retry: 1000\n\n"); err != nil {
		return
	}
	if send(f.render(true)) != nil {
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

// render is a view as it is sent; histories change seldom and are most of it.
func (f *feed) render(histories bool) []byte {
	v := f.look()
	if !histories {
		for i := range v.Keys {
			v.Keys[i].History = nil
		}
	}
	text, err := json.Marshal(v)
	if err != nil { // no number in it can be beyond JSON but a level of a broken limiter
		return []byte(`{"keys":[]}`)
	}
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
