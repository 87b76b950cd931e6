// What franz-go sees while masters move: as ../javascript/moving.mjs.
//
//	moving BOOTSTRAP TOPIC GROUP PARTITIONS RATE idempotent|plain
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	lock        sync.Mutex
	acked, read = map[string]bool{}, map[string]bool{}
)

func say(words ...any) {
	lock.Lock()
	defer lock.Unlock()
	fmt.Println(words...)
}

func note(letter string, seen map[string]bool, value string) {
	lock.Lock()
	defer lock.Unlock()
	seen[value] = true
	fmt.Println(letter, time.Now().UnixMilli(), value)
}

func missing() bool {
	lock.Lock()
	defer lock.Unlock()
	for value := range acked {
		if !read[value] {
			return true
		}
	}
	return false
}

func check(err error) {
	if err != nil {
		say("e", err)
		os.Exit(1)
	}
}

func main() {
	topic, group := os.Args[2], os.Args[3]
	partitions, err := strconv.Atoi(os.Args[4])
	check(err)
	rate, err := strconv.Atoi(os.Args[5])
	check(err)
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(os.Args[1], ",")...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ConsumeTopics(topic), kgo.ConsumerGroup(group),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	if os.Args[6] == "plain" {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client, err := kgo.NewClient(options...)
	check(err)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		for ctx.Err() == nil {
			fetches := client.PollFetches(ctx)
			fetches.EachError(func(_ string, _ int32, err error) {
				if ctx.Err() == nil {
					say("e", err)
				}
			})
			fetches.EachRecord(func(one *kgo.Record) { note("r", read, string(one.Value)) })
		}
	}()
	ended := make(chan bool)
	go func() { io.Copy(io.Discard, os.Stdin); close(ended) }()
	say("ready")
	began, sent, stopped := time.Now(), 0, false
	for !stopped {
		for due := int(time.Since(began).Milliseconds()) * rate / 1000; sent < due; sent++ {
			value := strconv.Itoa(sent)
			record := &kgo.Record{Topic: topic, Partition: int32(sent % partitions), Value: []byte(value)}
			client.Produce(ctx, record, func(_ *kgo.Record, err error) {
				if err != nil {
					say("e", err)
					return
				}
				note("a", acked, value)
			})
		}
		select {
		case <-ended:
			stopped = true
		case <-time.After(5 * time.Millisecond):
		}
	}
	flush, done := context.WithTimeout(ctx, 30*time.Second)
	client.Flush(flush)
	done()
	for wait := 0; wait < 1500 && missing(); wait++ {
		time.Sleep(10 * time.Millisecond)
	}
	say("end", sent)
	cancel()
	client.Close()
}
