module github.com/meteredhttp/meteredhttp/adapters/meteredredis

go 1.25.0

require (
	github.com/alicebob/miniredis/v2 v2.40.0
	github.com/meteredhttp/meteredhttp v0.0.0
	github.com/redis/go-redis/v9 v9.21.0
	go.uber.org/goleak v1.3.0
	pgregory.net/rapid v1.3.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/sony/gobreaker/v2 v2.4.0 // indirect
	github.com/yuin/gopher-lua v1.1.1 // indirect
	go.uber.org/atomic v1.11.0 // indirect
)

replace github.com/meteredhttp/meteredhttp => ../..
