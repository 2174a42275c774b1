package server

// Word is one output token and the text it stands for.
type Word struct {
	ID   uint32
	Text string
}

// Vocabulary is what simulated answers are made of. When every word is one
// token, and stays that token beside any other, an answer that comes back in
// the next turn's prompt has the ids that the engine generated and cached.
type Vocabulary struct {
	First []Word // opens an answer: no space in front
	Next  []Word // continues it
}

// PlainVocabulary serves an engine without a tokenizer.
func PlainVocabulary() Vocabulary {
	var v Vocabulary
	for i, w := range Words {
		v.First = append(v.First, Word{uint32(1000 + i), w})
		v.Next = append(v.Next, Word{uint32(2000 + i), " " + w})
	}
	return v
}

// Words are the candidates for a Vocabulary.
var Words = [...]string{
	"the", "a", "of", "and", "to", "in", "is", "that", "it", "for", "on", "with", "as", "are",
	"this", "be", "at", "by", "from", "or", "an", "not", "can", "will", "one", "all", "there",
	"which", "when", "what", "if", "so", "then", "some", "more", "other", "into", "time", "how",
}

// answer is a deterministic sequence of words.
type answer struct {
	vocabulary *Vocabulary
	seed       uint64
}

// newAnswer picks the answer to a prompt: the same for equal prompts and seeds,
// on every engine, as greedy sampling gives.
func newAnswer(v *Vocabulary, seed uint64, prompt []uint32) answer {
	h := seed
	for _, t := range prompt {
		h = mix(h ^ uint64(t))
	}
	return answer{v, h}
}

func (a answer) word(i int) Word {
	if i == 0 {
		return a.vocabulary.First[a.seed%uint64(len(a.vocabulary.First))]
	}
	return a.vocabulary.Next[mix(a.seed+uint64(i))%uint64(len(a.vocabulary.Next))]
}

// length is where the answer ends by itself: 16 to 271 tokens.
func (a answer) length() int { return 16 + int(mix(a.seed)%256) }

// mix is the finalizer of SplitMix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
