// A member of a consumer group with twmb/franz-go. Commits after each poll.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	count := func(word string) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, parts map[string][]int32) {
			fmt.Println(word, len(parts[os.Args[2]]))
		}
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(os.Args[1], ",")...),
		kgo.ConsumeTopics(os.Args[2]), kgo.ConsumerGroup(os.Args[3]),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
		kgo.FetchMaxWait(100*time.Millisecond), kgo.HeartbeatInterval(300*time.Millisecond),
		kgo.OnPartitionsAssigned(count("assigned")), kgo.OnPartitionsRevoked(count("revoked")),
		kgo.OnPartitionsLost(count("revoked")),
	)
	if err != nil {
		panic(err)
	}
	for {
		fetches := client.PollFetches(context.Background())
		fetches.EachError(func(_ string, _ int32, err error) { fmt.Println("error", err) })
		fetches.EachRecord(func(one *kgo.Record) { fmt.Println("read", one.Partition, one.Offset) })
		if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
			fmt.Println("error commit", err)
		}
	}
}
