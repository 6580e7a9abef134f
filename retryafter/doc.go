// Package retryafter reads what a server said about waiting.
package retryafter
