module github.com/meteredhttp/meteredhttp

go 1.25

require (
	github.com/go-resty/resty/v2 v2.17.2 // indirect
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/hashicorp/go-cleanhttp v0.5.2 // indirect
	github.com/hashicorp/go-retryablehttp v0.7.8 // indirect
	github.com/sony/gobreaker/v2 v2.4.0 // indirect
	go.uber.org/goleak v1.3.0 // indirect
	golang.org/x/net v0.43.0 // indirect
	pgregory.net/rapid v1.3.0 // indirect
)
