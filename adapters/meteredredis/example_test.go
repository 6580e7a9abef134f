package meteredredis_test

import (
	"fmt"
	"net/http"

	"github.com/redis/go-redis/v9"

	"github.com/meteredhttp/meteredhttp/adapters/meteredredis"
	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
)

func Example() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer client.Close()
	limiter, err := meteredredis.New(client, meteredredis.Config{
		Limits: []bucket.Limit{
			bucket.PerMinute(bucket.Requests, 9_000),
			bucket.PerMinute(bucket.Tokens, 1_500_000),
		},
		Headroom:  0.95,
		Processes: 8, // should the store be away from the start
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limiter.Close()
	stack, err := middleware.New(middleware.Config{Limiter: limiter})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = &http.Client{Transport: stack.Transport(nil)}
}
