package main

import "testing"

func TestASidecarKnowsItselfByAnyName(t *testing.T) {
	for _, c := range []struct {
		url, listen string
		want        bool
	}{
		{"http://127.0.0.1:8080", "127.0.0.1:8080", true},
		{"http://localhost:8080/v1", "127.0.0.1:8080", true},
		{"http://127.0.0.1:8080", "localhost:8080", true},
		{"http://[::1]:8080", "[::1]:8080", true},
		{"http://[::1]:8080", ":8080", true},
		{"http://localhost:8080", "0.0.0.0:8080", true},
		{"http://0.0.0.0:8080", "127.0.0.1:8080", true},
		{"http://Box.example.com:8080", "box.example.com:8080", true},
		{"http://localhost", "127.0.0.1:80", true},
		{"https://localhost", "127.0.0.1:443", true},
		{"http://127.0.0.1:8081", "127.0.0.1:8080", false},
		{"http://127.0.0.2:8080", "127.0.0.1:8080", false},
		{"http://10.0.0.1:8080", ":8080", false},
		{"http://10.0.0.1:8080", "127.0.0.1:8080", false},
		{"http://localhost:8080", "10.0.0.1:8080", false},
		{"https://api.example.com:8080", "127.0.0.1:8080", false},
		{"https://api.example.com:8080", ":8080", false},
		{"http://127.0.0.1:8080", "8080", false},
	} {
		if got := reaches(upstreamAt(t, c.url), c.listen); got != c.want {
			t.Errorf("%s reaches %s: %t, want %t", c.url, c.listen, got, c.want)
		}
	}
}

func TestABaseIsTheSameHoweverItIsSpelt(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"https://api.example.com", "https://API.example.com:443/", true},
		{"http://api.example.com/v1", "http://api.example.com:80/v1/", true},
		{"https://api.example.com", "http://api.example.com", false},
		{"https://api.example.com", "https://api.example.com/v1", false},
		{"https://api.example.com", "https://api.example.com:444", false},
		{"https://api.example.com", "https://api.example.org", false},
	} {
		if got := sameBase(upstreamAt(t, c.a), upstreamAt(t, c.b)); got != c.want {
			t.Errorf("%s and %s: %t, want %t", c.a, c.b, got, c.want)
		}
	}
}
