package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/anthropics/anthropic-sdk-go"
)

var questions = []string{
	"What is a token bucket?",
	"What does Retry-After say?",
	"When does a circuit breaker open?",
}

// converse asks all questions at once, on the one budget, and then one more whose
// answer is streamed. Each answer is printed with the model that gave it.
func converse(ctx context.Context, w io.Writer, client anthropic.Client, model string) error {
	answers := make([]string, len(questions))
	errs := make([]error, len(questions))
	var wg sync.WaitGroup
	for i, q := range questions {
		wg.Go(func() {
			var by string
			by, answers[i], errs[i] = ask(ctx, client, model, q)
			answers[i] = by + ": " + answers[i]
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i, q := range questions {
		fmt.Fprintf(w, "%s\n  %s\n", q, answers[i])
	}

	const last = "And why is it rude to retry at once?"
	fmt.Fprintf(w, "%s\n  ", last)
	err := stream(ctx, client, model, last,
		func(by string) { fmt.Fprint(w, by, ": ") },
		func(piece string) { fmt.Fprint(w, piece) })
	fmt.Fprintf(w, "\n\n")
	return err
}

func prompt(model, question string) anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model:     model,
		MaxTokens: 200,
		System:    []anthropic.TextBlockParam{{Text: "Answer in one short sentence."}},
		Messages:  []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(question))},
	}
}

// ask returns the answer to a question, and the model that gave it: the backup, if
// the call ended there.
func ask(ctx context.Context, client anthropic.Client, model, question string) (by, answer string, err error) {
	message, err := client.Messages.New(ctx, prompt(model, question))
	if err != nil {
		return "", "", err
	}
	var text strings.Builder
	for _, block := range message.Content {
		text.WriteString(block.Text)
	}
	return message.Model, strings.TrimSpace(text.String()), nil
}

// stream hands on the model that answers, and the pieces of its answer as they
// come. An error that comes in the middle is returned: nothing is sent again once
// there was an event.
func stream(ctx context.Context, client anthropic.Client, model, question string, by, piece func(string)) error {
	s := client.Messages.NewStreaming(ctx, prompt(model, question))
	defer s.Close() // gives the budget's slot back
	for s.Next() {
		switch event := s.Current().AsAny().(type) {
		case anthropic.MessageStartEvent:
			by(event.Message.Model)
		case anthropic.ContentBlockDeltaEvent:
			piece(event.Delta.Text)
		}
	}
	return s.Err()
}
