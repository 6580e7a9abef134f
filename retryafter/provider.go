package retryafter

import (
	"net/http"
	"time"
)

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
	// An answer that has them is not read for Meters of requests.
	Drafts bool
	// ShouldRetry is a header whose "true" or "false" outranks the status.
	ShouldRetry string
	// Rules say what its answers mean where the status alone does not; the first
	// that matches decides.
	Rules []Rule
	// Hints are the headers and the places of its bodies that state a wait. They
	// are looked at where no header that [Parse] knows states one: headers first,
	// then the body, each in order; the first usable value decides.
	Hints []Hint
	// Embedded are the paths of a code that stands for a status where the answer
	// itself is a 200: a GraphQL error or an error event in a stream. A number is
	// the status; a word is looked up in Codes.
	Embedded []string
	Codes    map[string]int
	// BodyHeaders is the path of an object in the body whose members are read as
	// limit headers.
	BodyHeaders string
	// Header reads what data cannot say from an answer's headers. It is called for
	// every answer that is classified, with a body or without, after all that is
	// declared has been read, and may change the Signal: set RetryAfter and
	// HasHint, Floor, another Class, or add windows. now is the instant that times
	// in h are compared with: the answer's own Date where it has one and no Age. It
	// must be safe for concurrent use, must not change h and must keep neither.
	// [Source.Windows] does not call it.
	Header func(s *Signal, h http.Header, now time.Time)
	// Body is Header for the body. It is called after Header, with the first
	// document of the body as encoding/json decodes it into an any (json.Number for
	// numbers), and not where there is none.
	Body func(s *Signal, body any)
}

// Meter declares one window: what it counts and the headers that state it.
// Names are matched without regard to case. A Window is stated where Remaining
// is, of a Meter that declares it; else where UsedOf is, else Limit; a Meter
// without amounts states one by Present, or else by Reset alone. A wait that the
// server states as such is no Meter but a [Hint].
//
// Two Meters of one Provider with the same Unit and Name are one window: the
// later fills in what the earlier one left unstated. One without amounts only
// fills in, after one that has them.
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
	// which that key is given as "key=used/limit". Limit and Used are not declared
	// beside it.
	UsedOf, UsedOfKey string
	// Reset is the header that says when; Format says how to read it. [Signal.Wait]
	// waits for it where nothing remains, and on a RateLimited answer also where
	// what remains is not stated and no other window is exhausted.
	Reset  string
	Format Format
	// Present is a header whose presence alone is the news, of a window without
	// amounts: Reset and Interval count only beside it. "no", "false" and "0" count
	// as absent.
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
	// Below 400 only Embedded finds an error, whose status then counts.
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

// Hint is a place in an answer that states a wait: a header or a place in the
// body, one of the two.
type Hint struct {
	// Header is a header of the provider's own. All its lines are read, and lists
	// joined by commas; the longest usable value wins. The names that [Parse] knows
	// keep their meaning: a Hint can only add forms to them ("Retry-After: 1m30s").
	Header string
	// Path is a place in the body, as in Rule.Paths.
	Path string
	// Format is how the value is written. What cannot be read so counts as absent.
	Format Format
	// After are phrases of a text, such as "try again in ": the wait is the
	// duration with units that follows one of them. Empty: the value is the wait.
	After []string
}
