// A member of a consumer group with IBM/sarama: it leaves its session at an error of a heartbeat.
// Commits ten times a second.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

type handler struct{}

func (handler) Setup(session sarama.ConsumerGroupSession) error {
	fmt.Println("assigned", len(session.Claims()[os.Args[2]]))
	return nil
}

func (handler) Cleanup(sarama.ConsumerGroupSession) error {
	fmt.Println("revoked")
	return nil
}

func (handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for record := range claim.Messages() {
		fmt.Println("read", record.Partition, record.Offset)
		session.MarkMessage(record, "")
	}
	return nil
}

func main() {
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Consumer.Return.Errors = true
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Interval = 100 * time.Millisecond
	config.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
	config.Consumer.MaxWaitTime = 100 * time.Millisecond
	group, err := sarama.NewConsumerGroup(strings.Split(os.Args[1], ","), os.Args[3], config)
	if err != nil {
		panic(err)
	}
	go func() {
		for err := range group.Errors() {
			fmt.Println("error", err)
		}
	}()
	for {
		if err := group.Consume(context.Background(), []string{os.Args[2]}, handler{}); err != nil {
			fmt.Println("error", err)
		}
	}
}
