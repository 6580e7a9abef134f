package escalate

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"unicode/utf8"
)

func fieldsOf(t testing.TB, body map[string]any) []field {
	t.Helper()
	c, err := compile(Route{Name: "x", Body: body})
	if err != nil {
		t.Fatal(err)
	}
	return c.fields
}

func TestSetFields(t *testing.T) {
	for name, tc := range map[string]struct {
		body string
		set  map[string]any
		want string
	}{
		"replaced in place":           {`{"a":1,"model":"x","b":2}`, map[string]any{"model": "y"}, `{"a":1,"model":"y","b":2}`},
		"added at the end":            {`{"a":1}`, map[string]any{"model": "y"}, `{"a":1,"model":"y"}`},
		"added to an empty object":    {`{}`, map[string]any{"b": 1, "a": 2}, `{"a":2,"b":1}`},
		"several, some there":         {`{"c":0,"a":0}`, map[string]any{"a": 1, "b": 2, "c": 3}, `{"c":3,"a":1,"b":2}`},
		"white space kept":            {" {\n  \"model\" : \"x\" ,\n  \"n\" : 1.0\n}\n", map[string]any{"model": "y", "z": true}, " {\n  \"model\" : \"y\" ,\n  \"n\" : 1.0,\"z\":true\n}\n"},
		"space inside an empty one":   {"{ \n }", map[string]any{"a": 1}, "{\"a\":1 \n }"},
		"numbers kept to the digit":   {`{"n":12345678901234567890.10,"e":1E+2,"model":0}`, map[string]any{"model": "y"}, `{"n":12345678901234567890.10,"e":1E+2,"model":"y"}`},
		"only the top level":          {`{"a":{"model":"x"},"b":[{"model":"x"}]}`, map[string]any{"model": "y"}, `{"a":{"model":"x"},"b":[{"model":"x"}],"model":"y"}`},
		"at each place of a name":     {`{"model":"x","a":1,"model":"z"}`, map[string]any{"model": "y"}, `{"model":"y","a":1,"model":"y"}`},
		"an escaped name":             {`{"mod\u0065l":"x"}`, map[string]any{"model": "y"}, `{"mod\u0065l":"y"}`},
		"names are case-sensitive":    {`{"Model":"x"}`, map[string]any{"model": "y"}, `{"Model":"x","model":"y"}`},
		"null, objects and arrays":    {`{"a":1,"b":[1,[2]],"c":{"d":{}}}`, map[string]any{"a": nil, "b": map[string]int{"x": 1}, "c": []int{}}, `{"a":null,"b":{"x":1},"c":[]}`},
		"escapes in values kept":      {`{"s":"\u00e9\/\"","model":""}`, map[string]any{"model": "é"}, `{"s":"\u00e9\/\"","model":"é"}`},
		"raw messages go in as given": {`{"a":1}`, map[string]any{"a": json.RawMessage(`{"z":1,"a":2}`)}, `{"a":{"z":1,"a":2}}`},
	} {
		t.Run(name, func(t *testing.T) {
			body := []byte(tc.body)
			got, err := setFields(body, fieldsOf(t, tc.set))
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			if string(body) != tc.body {
				t.Error("the original was changed")
			}
		})
	}
}

// FuzzSetFields: what comes out is the object that went in with the field set,
// and nothing else is touched; what is not an object is an error.
func FuzzSetFields(f *testing.F) {
	for _, body := range []string{
		`{}`, `{"model":"x"}`, `{"a":1,"model":{"b":[1,2]},"c":null}`, "{ \"model\" :1 , \"z\":2\n}\r\n", `{"model":1,"model":2}`,
		`{"n":1e999,"m":-0.0}`, `{"mod\u0065l":true}`, `[]`, `null`, ``, `{"a":1}x`, `{"a":1,}`, `{"\ud800":1}`, "{\"\xff\":1}",
		"\ufeff{}", `{"a":"}"}`, `{"model":"x"}{"model":"x"}`, `{"":0}`,
	} {
		f.Add([]byte(body), "model", "y")
	}
	f.Add([]byte(`{"a":1}`), "", "")
	f.Add([]byte(`{"<":1}`), "<", "\u2028")
	f.Fuzz(func(t *testing.T, body []byte, name, value string) {
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			t.Skip()
		}
		fields := fieldsOf(t, map[string]any{name: value})
		var before map[string]json.RawMessage
		bad := json.Unmarshal(body, &before) != nil || before == nil
		got, err := setFields(body, fields)
		if (err != nil) != bad {
			t.Fatalf("error %v for %q, which Unmarshal calls bad: %v", err, body, bad)
		}
		if bad {
			return
		}
		var after map[string]json.RawMessage
		if err := json.Unmarshal(got, &after); err != nil {
			t.Fatalf("%q became %q: %v", body, got, err)
		}
		var set string
		if err := json.Unmarshal(after[name], &set); err != nil || set != value {
			t.Fatalf("%q: the field is %s, want %q", got, after[name], value)
		}
		delete(before, name)
		delete(after, name)
		if !reflect.DeepEqual(before, after) {
			t.Fatalf("%q became %q", body, got)
		}
		again, err := setFields(got, fields)
		if err != nil || !bytes.Equal(again, got) {
			t.Fatalf("set twice, %q became %q: %v", got, again, err)
		}
	})
}
