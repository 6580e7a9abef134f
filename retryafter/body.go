package retryafter

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"encoding/xml"
	"io"
	"net/http"
	"strings"
)

// maxDepth bounds the nesting of a body that is looked into.
const maxDepth = 64

// documents returns what a body holds: the JSON value, the leaf elements of an
// XML document by name, or the JSON value of each event of a stream. A body cut
// off at BodyLimit gives what came before the cut. Anything else gives nothing.
func documents(h http.Header, body []byte) []any {
	if strings.EqualFold(first(h, "Content-Encoding"), "gzip") {
		// net/http unpacks what it asked for itself; this the caller asked for.
		if z, err := gzip.NewReader(bytes.NewReader(body)); err == nil {
			body, _ = io.ReadAll(io.LimitReader(z, BodyLimit))
		}
	}
	body = bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))
	body = bytes.TrimLeft(body, " \t\r\n")
	if len(body) == 0 {
		return nil
	}
	switch {
	case strings.HasPrefix(first(h, "Content-Type"), "text/event-stream"),
		bytes.HasPrefix(body, []byte("event:")), bytes.HasPrefix(body, []byte("data:")), body[0] == ':':
		return events(body)
	case body[0] == '<':
		if doc := elements(body); len(doc) > 0 {
			return []any{doc}
		}
	case body[0] == '{' || body[0] == '[':
		if doc, ok := value(body); ok {
			return []any{doc}
		}
	}
	return nil
}

// events returns the JSON values of an event stream's data.
func events(body []byte) (docs []any) {
	var data []byte
	flush := func() {
		if doc, ok := value(data); ok {
			docs = append(docs, doc)
		}
		data = data[:0]
	}
	for line := range bytes.Lines(body) {
		line = bytes.TrimRight(line, "\r\n")
		if v, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(append(data, bytes.TrimPrefix(v, []byte(" "))...), '\n')
		} else if len(line) == 0 {
			flush()
		}
	}
	flush()
	return docs
}

// value reads one JSON value, or of one that is cut off or broken what comes
// before the fault. Scalars alone are of no use and do not count.
func value(data []byte) (any, bool) {
	data = bytes.TrimLeft(data, " \t\r\n")
	if len(data) == 0 || data[0] != '{' && data[0] != '[' {
		return nil, false
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, _ := next(d, maxDepth)
	return v, v != nil
}

// next reads the decoder's next value as far as it goes; it is false where the
// value is incomplete.
func next(d *json.Decoder, depth int) (any, bool) {
	t, err := d.Token()
	if err != nil {
		return nil, false
	}
	delim, nested := t.(json.Delim)
	if !nested {
		return t, true
	}
	if depth == 0 {
		return nil, false
	}
	if delim == '[' {
		list := []any{}
		for d.More() {
			v, ok := next(d, depth-1)
			if v != nil {
				list = append(list, v)
			}
			if !ok {
				return list, false
			}
		}
		_, err = d.Token()
		return list, err == nil
	}
	object := map[string]any{}
	for d.More() {
		k, err := d.Token()
		name, isName := k.(string)
		if err != nil || !isName {
			return object, false
		}
		v, ok := next(d, depth-1)
		if v != nil {
			object[name] = v
		}
		if !ok {
			return object, false
		}
	}
	_, err = d.Token()
	return object, err == nil
}

// elements reads an XML document's leaf elements by their local names; of
// several with one name the first stays.
func elements(body []byte) map[string]any {
	doc := map[string]any{}
	d := xml.NewDecoder(bytes.NewReader(body))
	d.Strict = false
	name, text := "", ""
	for range 4096 {
		t, err := d.RawToken()
		if err != nil {
			break
		}
		switch t := t.(type) {
		case xml.StartElement:
			name, text = t.Name.Local, ""
		case xml.CharData:
			if name != "" {
				text += string(t)
			}
		case xml.EndElement:
			if _, have := doc[name]; !have && name == t.Name.Local && name != "" {
				doc[name] = strings.TrimSpace(text)
			}
			name = ""
		}
	}
	return doc
}

// lookup calls f with each value that path leads to, through all elements of
// the lists on the way, until f returns true; it returns whether one did.
func lookup(doc any, path []string, f func(any) bool) bool {
	switch v := doc.(type) {
	case []any:
		for _, e := range v {
			if lookup(e, path, f) {
				return true
			}
		}
		return false
	case map[string]any:
		if len(path) > 0 {
			e, ok := v[path[0]]
			return ok && lookup(e, path[1:], f)
		}
	}
	return len(path) == 0 && doc != nil && f(doc)
}

// text returns a scalar as it was written.
func text(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	case bool:
		if v {
			return "true", true
		}
		return "false", true
	}
	return "", false
}
