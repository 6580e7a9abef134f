// Package docs holds the documentation to the code. Its tests compile every Go block of every Markdown
// file in the repository, follow every relative link and anchor, compare every stated default with what
// the code does, and look at what the packages pull in.
//
//	cd examples && go test -count=1 ./docs -v
//
// The pages are outside of this module, so that the go command's cache does not see them change: hence
// -count=1.
//
// A block that is a program is compiled as it is. A fragment is compiled as the body of a function, or as
// declarations, with the imports that it needs; a line of three dots is left out code; names that it does
// not declare itself are those of codeContext, and no others.
package docs
