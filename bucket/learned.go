package bucket

import "fmt"

// Source says where a limit comes from. The zero Source is Configured.
type Source uint8

const (
	Configured Source = iota // by Config.Limits, LimitsFor or SetLimits
	Stated                   // by the server, in its answers; see Grant.Report
	Refusals                 // nobody told: found by what the server refused
)

var sourceNames = [...]string{"configured", "stated", "refusals"}

// String returns configured, stated or refusals.
func (s Source) String() string {
	if int(s) < len(sourceNames) {
		return sourceNames[s]
	}
	return fmt.Sprintf("Source(%d)", uint8(s))
}

// MarshalText is String, for JSON and logs.
func (s Source) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (s *Source) UnmarshalText(text []byte) error {
	for k := range sourceNames {
		if sourceNames[k] == string(text) {
			*s = Source(k)
			return nil
		}
	}
	return fmt.Errorf("bucket: unknown source %q", text)
}
