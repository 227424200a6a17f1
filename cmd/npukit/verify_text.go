package main

// verifyText is what a model reads while it is verified: plain English of some hundred tokens,
// written for this purpose, with names, figures, speech and code in it, so that both easy and
// surprising tokens come.
const verifyText = `The harbour master kept two clocks. One stood on his desk and showed the time of the town; the other hung above the window and showed the
time of the tide, which was never the same two days running. Visitors thought that the second clock was broken. "It is the only one that is right,"
he used to say, and went on writing in his book: 6 boats in, 4 boats out, wind from the north-west, 17 degrees.

In the autumn of 1923 a ship called the Margarethe came in three hours before she was due. She carried oranges from Valencia, a piano, and forty
sacks of letters that had been posted by mistake. Nobody in the town could read Spanish except the baker's daughter, so the letters went to her.
She sorted them by the colour of their stamps, then by the length of their words, and in the end by how sad they seemed to her. The happy ones she
answered herself.

A machine that adds numbers does something similar, although it has no idea of it. It takes what lies in one place, multiplies it by what lies in
another, and keeps the sum:

    total = 0
    for i in range(len(a)):
        total = total + a[i] * b[i]

If one of the numbers is wrong, the sum is wrong, and so is everything that is built on it. The art is to find out which one it was. You can look at
the result for as long as you like and will not see it there. You have to go back, step by step, until you come to the first place where what went in
was right and what came out was not. That is where the mistake lives, and it is usually smaller than you think: a sign, a step too many, a name
that stands for something else.
`

// verifyPrompts are what a model continues; short ones, so that little lies in the cache, of
// different lengths.
var verifyPrompts = [...]string{
	"The capital of France is",
	"Once upon a time there was a lighthouse keeper who",
	"To find the first wrong number in a long calculation, you",
}
