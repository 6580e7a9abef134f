package llm

import (
	"encoding/json"
	"strings"
	"testing"
)

// The places are those that providers document; TEXT stands for the text.
func TestTextCountsWhereverAProviderMayHaveIt(t *testing.T) {
	prose := strings.Repeat("lorem ipsum ", 500)
	for name, body := range map[string]string{
		"Cohere's documents":             `{"message":"hi","documents":[{"title":"x","snippet":"TEXT"}]}`,
		"Cohere's documents, version 2":  `{"messages":[],"documents":[{"data":{"title":"x","snippet":"TEXT"}}]}`,
		"Cohere's tool results":          `{"messages":[{"role":"tool","content":[{"type":"document","document":{"data":"TEXT"}}]}]}`,
		"a prompt's variables":           `{"input":"x","prompt":{"id":"p","variables":{"doc":"TEXT"}}}`,
		"what a shell said":              `{"input":[{"type":"shell_call_output","call_id":"1","output":[{"stdout":"TEXT","outcome":{"exit_code":0}}]}]}`,
		"what code logged":               `{"input":[{"type":"code_interpreter_call","outputs":[{"type":"logs","logs":"TEXT"}]}]}`,
		"tools that a server has":        `{"input":[{"type":"mcp_list_tools","tools":[{"name":"a","description":"TEXT"}]}]}`,
		"the schema of such a tool":      `{"input":[{"type":"mcp_list_tools","tools":[{"name":"a","input_schema":{"title":"TEXT"}}]}]}`,
		"a patch":                        `{"input":[{"type":"apply_patch_call","operation":{"path":"a","diff":"TEXT"}}]}`,
		"Anthropic's code execution":     `{"messages":[{"content":[{"type":"code_execution_tool_result","content":{"stdout":"TEXT"}}]}]}`,
		"Anthropic's web search":         `{"messages":[{"content":[{"type":"web_search_tool_result","content":[{"encrypted_content":"TEXT"}]}]}]}`,
		"Bedrock's prompt variables":     `{"promptVariables":{"a":{"text":"TEXT"}},"messages":[]}`,
		"Titan's text":                   `{"inputText":"TEXT","textGenerationConfig":{"maxTokenCount":100}}`,
		"Vertex' instances":              `{"instances":[{"prompt":"TEXT"}],"parameters":{"maxOutputTokens":5}}`,
		"Replicate's input":              `{"input":{"prompt":"TEXT"}}`,
		"a member of tomorrow":           `{"messages":[{"content":[{"type":"t","tomorrow":{"deep":["TEXT"]}}]}]}`,
		"a member of tomorrow's request": `{"messages":[],"tomorrow":{"deep":[{"er":"TEXT"}]}}`,
	} {
		for kind, text := range map[string]string{"long": prose, "short": "a short text", "one word of Chinese": "\u4f60\u597d\u4f60\u597d", "the same escaped": `\u4f60\u597d\u4f60\u597d`} {
			l := lookInto(t, name, strings.ReplaceAll(body, "TEXT", text))
			without := lookInto(t, name, strings.ReplaceAll(body, "TEXT", ""))
			var plain string
			json.Unmarshal([]byte(`"`+text+`"`), &plain)
			if got := l.text.bytes - without.text.bytes; got != int64(len(plain)) || l.files != without.files {
				t.Errorf("%s, %s: %d bytes of %d, %d files", name, kind, got, len(plain), l.files)
			}
		}
	}
}

func lookInto(t *testing.T, name, body string) *look {
	t.Helper()
	l := &look{scanner: scanner{window: make([]byte, windowSize)}}
	if !json.Valid([]byte(body)) || !l.open(post(t, "openai", "/v1/x", body)) || !l.known || l.ignored != 0 {
		t.Fatalf("%s: not understood", name)
	}
	return l
}

func TestIdsNamesAndURLsDoNotCountAsText(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", 4)
	for _, tc := range []struct {
		name, value   string
		bytes         int64
		images, files int64
	}{
		{"an id", `"call_` + long + `"`, 0, 0, 0},
		{"a name", `"get_weather"`, 0, 0, 0},
		{"a long URL", `"https://example.com/` + strings.Repeat(long, 10) + `"`, 0, 0, 0},
		{"a URL with its slashes escaped", `"https:\/\/example.com\/` + strings.Repeat(long, 10) + `"`, 0, 0, 0},
		{"a bucket's", `"gs://` + strings.Repeat(long, 3) + `"`, 0, 0, 0},
		{"a number", `0.5`, 0, 0, 0},
		{"nonsense", `[null,true]`, 0, 0, 0},
		{"text that begins with a URL", `"https://example.com/a/b is down"`, 31, 0, 0},
		{"text that begins like data", `"data: so many"`, 13, 0, 0},
		{"a picture", `"data:image/png;base64,` + strings.Repeat("iVBORw0KGgo", 10_000) + `"`, 0, 1, 0},
		{"a small picture", `"data:image/png;base64,iVBORw0KGgo"`, 0, 1, 0},
		{"a document", `"data:application/pdf;base64,` + strings.Repeat("iVBORw0KGgo", 10_000) + `"`, 0, 0, 1},
		{"a picture without its type", `"` + strings.Repeat("iVBORw0KGgo", 10_000) + `"`, 0, 0, 1},
		{"what is encrypted", `"` + strings.Repeat("iVBORw0KGgo", 100) + `"`, 1100, 0, 0},
	} {
		for _, place := range []string{`{"messages":[{"content":[{"type":"t","tomorrow":VALUE}]}]}`, `{"messages":[],"tomorrow":[VALUE]}`} {
			l := lookInto(t, tc.name, strings.ReplaceAll(place, "VALUE", tc.value))
			if l.text.bytes != tc.bytes || l.text.dense != 0 || l.images != tc.images || l.files != tc.files {
				t.Errorf("%s: %+v", tc.name, l.sight)
			}
		}
	}
	for _, body := range []string{
		`{"messages":[{"content":[{"type":"document_url","document_url":"https://x"}]}]}`,
		`{"messages":[{"content":[{"type":"document_url","document_url":"data:application/pdf;base64,` + strings.Repeat("iVBORw0KGgo", 100) + `"}]}]}`,
	} {
		if l := lookInto(t, "document_url", body); l.text.bytes != 0 || l.files != 1 {
			t.Errorf("Mistral's document: %+v", l.sight)
		}
	}
	for _, body := range []string{
		`{"messages":[{"content":[{"type":"thinking","thinking":"","signature":"` + strings.Repeat(long, 10) + `"}]}],"metadata":{"note":"not for the model"}}`,
		`{"contents":[{"parts":[{"thoughtSignature":"` + strings.Repeat(long, 10) + `"}]}],"tool_choice":{"function":{"name":"f"}}}`,
	} {
		if l := lookInto(t, "signature", body); l.text.bytes != 0 || l.files != 0 {
			t.Errorf("a signature: %+v", l.sight)
		}
	}
}

// Options alone say nothing of where the text is.
func TestARequestWithoutAKnownPlaceForTextIsChargedByItsSize(t *testing.T) {
	body := `{"parameters":{"max_new_tokens":5},"tomorrow":"` + strings.Repeat("lorem ipsum ", 500) + `"}`
	cost, _ := Cost(post(t, "generic", "/v1/x", body))
	if cost.InputTokens != int64(len(body))/4 {
		t.Errorf("%+v of %d bytes", cost, len(body))
	}
}
