// Package told is what a program is asked, and what it tells: a JSON line for each event.
package told

import (
	"encoding/json"
	"flag"
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// Asked holds every option of every `--do`; tests/compat/languages.py says what they mean.
type Asked struct {
	Do, Topic, Acks, Codec, Group, Protocol, Assignor, Instance string
	Bootstrap                                                   []string
	Count, Rate                                                 int
	Seconds                                                     time.Duration
	At                                                          time.Time
	Idempotent                                                  bool
}

func Options() Asked {
	var asked Asked
	bootstrap := flag.String("bootstrap", "", "")
	flag.StringVar(&asked.Do, "do", "", "")
	flag.StringVar(&asked.Topic, "topic", "", "")
	flag.StringVar(&asked.Acks, "acks", "all", "")
	flag.StringVar(&asked.Codec, "codec", "none", "")
	flag.StringVar(&asked.Group, "group", "", "")
	flag.StringVar(&asked.Protocol, "protocol", "classic", "")
	flag.StringVar(&asked.Assignor, "assignor", "", "")
	flag.StringVar(&asked.Instance, "instance", "", "")
	flag.IntVar(&asked.Count, "count", 0, "")
	flag.IntVar(&asked.Rate, "rate", 100, "")
	seconds := flag.Int("seconds", 30, "")
	at := flag.Int64("at", 0, "")
	idempotent := flag.String("idempotent", "false", "")
	flag.Parse()
	asked.Bootstrap = strings.Split(*bootstrap, ",")
	asked.Seconds = time.Duration(*seconds) * time.Second
	asked.At = time.UnixMilli(*at)
	asked.Idempotent = *idempotent == "true"
	return asked
}

// Values are those to produce: so many, or so many a second until the time is over.
func (asked Asked) Values() iter.Seq[string] {
	return func(yield func(string) bool) {
		begun := time.Now()
		for number := 0; ; number++ {
			if asked.Count > 0 && number == asked.Count {
				return
			}
			if asked.Count == 0 {
				due := begun.Add(time.Duration(number) * time.Second / time.Duration(asked.Rate))
				if due.After(begun.Add(asked.Seconds)) {
					return
				}
				time.Sleep(time.Until(due))
			}
			if !yield(fmt.Sprintf("%06d", number)) {
				return
			}
		}
	}
}

type Fields map[string]any

var lines sync.Mutex

func Event(name string, fields Fields) {
	line := Fields{"event": name, "at": time.Now().UnixMilli()}
	for field, value := range fields {
		line[field] = value
	}
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	lines.Lock()
	defer lines.Unlock()
	fmt.Println(string(text))
}

func Acked(value []byte, partition int, offset int64) {
	Event("acked", Fields{"value": string(value), "partition": partition, "offset": offset})
}

func Read(value []byte, partition int, offset int64) {
	Event("read", Fields{"value": string(value), "partition": partition, "offset": offset})
}

func Error(err error) {
	Event("error", Fields{"text": err.Error()})
}

func Rebalance(partitions []int32) {
	owned := append([]int32{}, partitions...)
	slices.Sort(owned)
	Event("rebalance", Fields{"partitions": owned})
}

func Step(what string) {
	Event("step", Fields{"what": what})
}

// Until waits for what another node has done: any node answers, and may be a moment behind.
func Until(true func() bool) {
	for range 200 {
		if true() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	Must(fmt.Errorf("it did not come true"))
}

// Must ends the program if what it was asked for failed.
func Must(err error) {
	if err != nil {
		Error(err)
		os.Exit(1)
	}
}

// Main does what is asked, and says so at the end.
func Main(programs map[string]func(Asked)) {
	asked := Options()
	program, known := programs[asked.Do]
	if !known {
		Must(fmt.Errorf("this client has no %q", asked.Do))
	}
	program(asked)
	Event("done", nil)
}
