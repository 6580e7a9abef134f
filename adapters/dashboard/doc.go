// Package dashboard is a page to watch a Stack by, to mount beside pprof:
//
//	mux.Handle("/debug/metered/", http.StripPrefix("/debug/metered", dashboard.Handler(stack)))
//
// It shows every key with its levels, its queue, what is in flight, a hold and how long it lasts, what share of
// the sends was refused over the last 15 minutes, and its health; and every route with its breaker. It is live, by
// server-sent events, once a second; while nobody watches it costs nothing.
//
// The page is read only, loads nothing from any other host, and runs under a Content-Security-Policy that allows
// its own files alone. Keys are shown as they are but for the credentials of URLs, and for the middle of long ones:
// whoever puts a secret into a key hashes it, as middleware.KeyByCredential does. Who may see it is for whoever
// mounts it to decide.
package dashboard
