module github.com/meteredhttp/meteredhttp/examples

go 1.25

require github.com/meteredhttp/meteredhttp v0.0.0

replace github.com/meteredhttp/meteredhttp => ../
