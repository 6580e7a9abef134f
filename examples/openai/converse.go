package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/openai/openai-go/v3"
)

var questions = []string{
	"What is a token bucket?",
	"What does Retry-After say?",
	"When does a circuit breaker open?",
}

// converse asks all questions at once, on the one budget, and then one more whose
// answer is streamed.
func converse(ctx context.Context, w io.Writer, client openai.Client, model string) error {
	answers := make([]string, len(questions))
	errs := make([]error, len(questions))
	var wg sync.WaitGroup
	for i, q := range questions {
		wg.Go(func() { answers[i], errs[i] = ask(ctx, client, model, q) })
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
	err := stream(ctx, client, model, last, func(piece string) { fmt.Fprint(w, piece) })
	fmt.Fprintf(w, "\n\n")
	return err
}

func prompt(model, question string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model: model,
		Messages: []openai.ChatCompletionMessageParamUnion{
			openai.SystemMessage("Answer in one short sentence."),
			openai.UserMessage(question),
		},
		// The most that the answer can cost is reserved beforehand, so a cap makes
		// room for others.
		MaxCompletionTokens: openai.Int(200),
	}
}

// ask returns the answer to a question.
func ask(ctx context.Context, client openai.Client, model, question string) (string, error) {
	completion, err := client.Chat.Completions.New(ctx, prompt(model, question))
	if err != nil {
		return "", err
	}
	if len(completion.Choices) == 0 {
		return "", errors.New("no choice in the answer")
	}
	return strings.TrimSpace(completion.Choices[0].Message.Content), nil
}

// stream hands on the pieces of an answer as they come. An error that comes in the
// middle is returned: nothing is sent again once there was a piece.
func stream(ctx context.Context, client openai.Client, model, question string, piece func(string)) error {
	params := prompt(model, question)
	// The last event then states the usage, by which the call is settled.
	params.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
	s := client.Chat.Completions.NewStreaming(ctx, params)
	defer s.Close() // gives the budget's slot back
	for s.Next() {
		if choices := s.Current().Choices; len(choices) > 0 {
			piece(choices[0].Delta.Content)
		}
	}
	return s.Err()
}
