package dashboard_test

import (
	"fmt"
	"net/http"

	"github.com/meteredhttp/meteredhttp/adapters/dashboard"
	"github.com/meteredhttp/meteredhttp/middleware"
)

func ExampleHandler() {
	stack, err := middleware.New(middleware.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux() // the one with pprof, which is not for everybody
	mux.Handle("/debug/metered/", http.StripPrefix("/debug/metered", dashboard.Handler(stack)))
	// Output:
}
