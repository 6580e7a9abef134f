// Package metertest is a metered provider to test against.
package metertest
