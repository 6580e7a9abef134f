// Package meteredretryable puts a [middleware.Stack] under a go-retryablehttp
// client.
package meteredretryable
