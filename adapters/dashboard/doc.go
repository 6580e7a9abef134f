// Package dashboard is a page to watch a Stack by, to mount beside pprof:
//
//	mux.Handle("/debug/metered/", http.StripPrefix("/debug/metered", dashboard.Handler(stack)))
//
// It shows every key with its levels, its queue, what is in flight, a hold and how long it lasts, what share of
// the sends was refused over the last 15 minutes, and its health; and every route with its breaker. It is live, by
// server-sent events, once a second; while nobody watches it costs nothing.
//
// The page is read only, loads nothing from any other host, and runs under a Content-Security-Policy that allows
// its own files alone. Keys are shown as they are but for what looks like a secret: the credentials and parameters of
// URLs, what follows Bearer or Basic, long mixtures of letters and digits; and but for the end of very long ones. A
// mark tells such keys apart, which is another one after each start. That is a net, not a promise: whoever puts a
// secret into a key hashes it, as middleware.KeyByCredential does. Who may see the page is for whoever mounts it to
// decide.
//
// All keys are counted; of more than 400 those that are worst off are shown. http.Server.Shutdown waits for those
// who watch, as for any answer that does not end; Close does not.
package dashboard
