package tokenizer_test

import (
	"fmt"
	"log"

	"github.com/npukit/npukit/model/tokenizer"
)

// open opens a small tokenizer, as a program opens that of a model.
func open() tokenizer.Tokenizer {
	t, err := tokenizer.Open("testdata/llama3.json")
	if err != nil {
		log.Fatal(err)
	}
	return t
}

func Example() {
	t, err := tokenizer.Open("testdata/llama3.json")
	if err != nil {
		log.Fatal(err)
	}
	ids, err := t.Encode("What is gravity?", nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, id := range ids {
		token, _ := t.Token(id)
		fmt.Printf("%3d %q\n", id, token)
	}
	fmt.Println(t.Decode(ids))
	// Output:
	// 702 "<bos>"
	// 438 "What"
	// 322 " is"
	// 597 " gr"
	// 441 "av"
	// 454 "it"
	//  88 "y"
	//  30 "?"
	// <bos>What is gravity?
}

// Special tokens in the text are always recognized. NoSpecial leaves out those around it, for
// example because a chat template writes them.
func ExampleTokenizer_Encode() {
	t := open()
	for _, opts := range []*tokenizer.EncodeOptions{nil, {NoSpecial: true}} {
		ids, err := t.Encode("<|im_start|>user", opts)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(ids)
	}
	// Output:
	// [702 704 84 82 68 81]
	// [704 84 82 68 81]
}

// A token is a sequence of bytes. A stream returns a character when its last byte is decoded.
func ExampleStream() {
	t := open()
	ids, err := t.Encode("the 🚀 dog", nil)
	if err != nil {
		log.Fatal(err)
	}
	s := t.Stream()
	for _, id := range ids {
		fmt.Printf("%d:%q ", id, s.Next(id))
	}
	fmt.Printf("%q\n", s.Flush())
	// Output:
	// 702:"" 265:"the" 290:" " 248:"" 222:"🚀" 391:" dog" ""
}

// A GGUF file has vocabulary and merges in its metadata, and names the pre-tokenizer.
func ExampleFromVocab() {
	t, err := tokenizer.FromVocab(tokenizer.Vocab{
		Model:  "gpt2",
		Pre:    "gpt-2",
		Tokens: []string{"a", "b", "c", "Ġ", "ab", "Ġab", "<s>"},
		Types:  []int32{1, 1, 1, 1, 1, 1, 3}, // the last is a control token
		Merges: []string{"a b", "Ġ ab"},
		BOS:    6,
		EOS:    -1,
		AddBOS: true,
	})
	if err != nil {
		log.Fatal(err)
	}
	ids, err := t.Encode("abc ab", nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ids)
	fmt.Println(t.Decode(ids))
	// Output:
	// [6 4 2 5]
	// <s>abc ab
}
