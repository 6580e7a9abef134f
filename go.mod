module github.com/meteredhttp/meteredhttp

go 1.25

require (
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/sony/gobreaker/v2 v2.4.0 // indirect
	go.uber.org/goleak v1.3.0 // indirect
	pgregory.net/rapid v1.3.0 // indirect
)
