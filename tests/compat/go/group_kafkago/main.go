// A member of a consumer group with segmentio/kafka-go's ConsumerGroup: it leaves its generation at
// any error of a heartbeat. Commits after every fifth record.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
)

func main() {
	brokers, topic, group := strings.Split(os.Args[1], ","), os.Args[2], os.Args[3]
	ctx := context.Background()
	members, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: group, Brokers: brokers, Topics: []string{topic}, StartOffset: kafka.FirstOffset,
		HeartbeatInterval: 300 * time.Millisecond,
	})
	if err != nil {
		panic(err)
	}
	for {
		generation, err := members.Next(ctx)
		if err != nil {
			fmt.Println("error", err)
			continue
		}
		fmt.Println("assigned", len(generation.Assignments[topic]))
		for _, one := range generation.Assignments[topic] {
			generation.Start(read(brokers, topic, generation, one))
		}
		generation.Start(func(ctx context.Context) { <-ctx.Done(); fmt.Println("revoked") })
	}
}

func read(brokers []string, topic string, generation *kafka.Generation, from kafka.PartitionAssignment) func(context.Context) {
	return func(ctx context.Context) {
		reader := kafka.NewReader(kafka.ReaderConfig{
			Brokers: brokers, Topic: topic, Partition: from.ID, MaxWait: 100 * time.Millisecond,
		})
		defer reader.Close()
		reader.SetOffset(from.Offset)
		for {
			record, err := reader.ReadMessage(ctx)
			if ctx.Err() != nil {
				return
			} else if err != nil {
				fmt.Println("error", err)
				continue
			}
			fmt.Println("read", record.Partition, record.Offset)
			if record.Offset%5 != 0 {
				continue
			}
			offsets := map[string]map[int]int64{topic: {record.Partition: record.Offset + 1}}
			if err := generation.CommitOffsets(offsets); err != nil {
				fmt.Println("error commit", err)
			}
		}
	}
}
