package retryafter

import "time"

// Provider declares how one server states its limits. The package knows the
// providers that its table lists; a user adds one of his own, or replaces one,
// in [Reader].Providers. Everything but Name may be left out.
type Provider struct {
	// Name is how Reader.Hosts refers to it.
	Name string
	// Hosts are the hosts that speak it, without port: "api.openai.com", or a
	// pattern with one star for any text ("*.openai.azure.com"). A host itself
	// comes before a pattern, a longer pattern before a shorter one.
	Hosts []string
	// Meters are its limit headers. Without any, the shapes that unknown hosts
	// are read by are looked for.
	Meters []Meter
	// Drafts also reads the RateLimit fields of the IETF drafts, all generations.
	Drafts bool
	// ShouldRetry is a header whose "true" or "false" outranks the status.
	ShouldRetry string
	// Rules say what its answers mean where the status alone does not; the first
	// that matches decides.
	Rules []Rule
	// Hints are the places of its bodies that state a wait, looked at in order
	// where no header does.
	Hints []Hint
	// Embedded are the paths of a code that stands for a status where the answer
	// itself is a 200: a GraphQL error or an error event in a stream. A number is
	// the status; a word is looked up in Codes.
	Embedded []string
	Codes    map[string]int
	// BodyHeaders is the path of an object in the body whose members are read as
	// limit headers.
	BodyHeaders string
	// Body reads what data cannot say. It is called last, with the answer's body
	// as encoding/json decodes it into an any (json.Number for numbers), and may
	// change the Signal: add windows, or set Floor. It must be safe for concurrent
	// use and must not keep the Signal.
	Body func(s *Signal, body any)
}

// Meter declares one window: what it counts and the headers that state it.
// Names are matched without regard to case. Two Meters of one Provider with the
// same Unit and Name are one window: the later fills in what the earlier one
// left unstated.
type Meter struct {
	// Unit is the Window's Unit.
	Unit string
	// Name is the Unit that the window takes where another window of the same
	// Unit has less remaining. Empty: it keeps Unit.
	Name string
	// Limit, Remaining and Used are headers with a whole number (decimals are
	// cut). Used stands in for the one of the other two that is not stated.
	Limit, Remaining, Used string
	// UsedOf is a header of the form "used/limit", or with UsedOfKey a list in
	// which that key is given as "key=used/limit".
	UsedOf, UsedOfKey string
	// Reset is the header that says when; Format says how to read it.
	Reset  string
	Format Format
	// Present is a header whose presence alone is the news: its Window states
	// nothing else. "no", "false" and "0" count as absent.
	Present string
	// Per is the window's length, where it is known.
	Per time.Duration
	// Interval is a header with the window's length, a number of IntervalUnit
	// (0 means seconds). With FillRate, a header too, it is the time in which that
	// much comes back.
	Interval     string
	IntervalUnit time.Duration
	FillRate     string
	// Refills says that it refills continuously.
	Refills bool
	// sign is the header that shows all windows of its family to be there, on a
	// host where none may be; empty: its own.
	sign string
}

// Format is how a point in time or a length of time is written.
type Format uint8

const (
	// Auto goes by shape and size: RFC 3339, an HTTP date, a duration with units
	// ("6m0s", "17ms"), or a number: from 1e11 milliseconds since 1970, from 1e9
	// seconds since 1970, else seconds from now.
	Auto Format = iota
	// Seconds is a number of seconds from now.
	Seconds
	// Milliseconds is a number of milliseconds from now.
	Milliseconds
	// UnixSeconds is a number of seconds since 1970.
	UnixSeconds
	// UnixMilliseconds is a number of milliseconds since 1970.
	UnixMilliseconds
	// Duration is a length of time with units: "1h2m3.5s", "900ms", "45 seconds".
	Duration
	// Date is RFC 3339 (seconds may be left out) or an HTTP date.
	Date
)

// Rule says what an answer means. All that is set must hold: the status, and
// that a value is found that Is one of, or Contains one of, the given texts.
type Rule struct {
	// Status lists the statuses it holds for; empty is every status from 400 on.
	Status []int
	// Header is the header to look at, or Paths are the places in the body, any
	// of which may match. A path is names joined by dots ("error.code"); lists on
	// the way are gone through, so that any element may match. The leaf elements
	// of an XML body are found by their names.
	Header string
	Paths  []string
	// Is are values, of which one must equal; Contains are texts, of which one
	// must occur. Case counts in neither. Both empty: the value need only be there.
	Is, Contains []string
	// HintOver holds where the answer's hint is longer than this; 0 is no condition.
	HintOver time.Duration
	// Class is what the answer then is.
	Class Class
	// Retry says whether it is retryable; zero goes by Class.
	Retry Retry
	// Floor becomes Signal.Floor.
	Floor time.Duration
}

// Retry overrides whether an answer is retryable.
type Retry uint8

const (
	// ByClass: RateLimited and Overloaded are, QuotaExhausted is not, and Other
	// and ServerError go by the status (408, 500, 502 and 504 are).
	ByClass Retry = iota
	// Again: it is.
	Again
	// Never: it is not.
	Never
)

// Hint is a place in a body that states a wait.
type Hint struct {
	// Path is where, as in Rule.Paths.
	Path string
	// Format is how the value is written.
	Format Format
	// After are phrases of a text, such as "try again in ": the wait is the
	// duration with units that follows one of them. Empty: the value is the wait.
	After []string
}
