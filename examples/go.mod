module github.com/meteredhttp/meteredhttp/examples

go 1.25.0

require (
	github.com/dustin/go-humanize v1.1.0
	github.com/failsafe-go/failsafe-go v0.9.8
	github.com/hashicorp/go-retryablehttp v0.7.8
	github.com/meteredhttp/meteredhttp v0.0.0
	github.com/sony/gobreaker/v2 v2.4.0
	go.uber.org/goleak v1.3.0
	golang.org/x/term v0.43.0
	golang.org/x/time v0.15.0
)

require (
	github.com/bits-and-blooms/bitset v1.24.4 // indirect
	github.com/hashicorp/go-cleanhttp v0.5.2 // indirect
	github.com/influxdata/tdigest v0.0.1 // indirect
	golang.org/x/sys v0.44.0 // indirect
)

replace github.com/meteredhttp/meteredhttp => ../
