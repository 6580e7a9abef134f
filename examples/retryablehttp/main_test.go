package main

// What main prints is what is promised: a refusal is the Stack's alone, and goes
// out six times at the most (MaxRetries + 1) where two loops would make it 30.
func Example() {
	main()
	// Output:
	// served              200 OK, 1 sent
	// refused once        200 OK, 2 sent
	// connection lost     200 OK, 2 sent
	// refused for ever    429 Too Many Requests, 6 sent
}
