package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"evenkeel/compat/told"

	"github.com/segmentio/kafka-go"
)

var assignors = map[string]kafka.GroupBalancer{
	"range": kafka.RangeGroupBalancer{}, "roundrobin": kafka.RoundRobinGroupBalancer{},
}

func group(asked told.Asked) {
	settings := kafka.ReaderConfig{
		Brokers:     asked.Bootstrap,
		GroupID:     asked.Group,
		Topic:       asked.Topic,
		StartOffset: kafka.FirstOffset,
		Logger:      kafka.LoggerFunc(assigned),
		// As the others do it: by itself, each commit is waited for before the next record.
		CommitInterval: time.Second,
	}
	if asked.Assignor != "" {
		settings.GroupBalancers = []kafka.GroupBalancer{assignors[asked.Assignor]}
	}
	reader := kafka.NewReader(settings)
	soon, cancel := context.WithTimeout(context.Background(), asked.Seconds)
	defer cancel()
	for left := asked.Count; left > 0; left-- {
		one, err := reader.FetchMessage(soon)
		if soon.Err() != nil {
			break
		}
		told.Must(err)
		told.Read(one.Value, one.Partition, one.Offset)
		if err := reader.CommitMessages(soon, one); err != nil && soon.Err() == nil {
			told.Error(err)
		}
	}
	told.Must(reader.Close())
}

var partition = regexp.MustCompile(`partition:(\d+)`)

// assigned reads kafka-go's log: a Reader tells its user of a new assignment nowhere else.
func assigned(format string, words ...any) {
	if !strings.HasPrefix(format, "subscribed to topics and partitions") {
		return
	}
	owned := []int32{}
	for _, found := range partition.FindAllStringSubmatch(fmt.Sprintf(format, words...), -1) {
		number, err := strconv.Atoi(found[1])
		told.Must(err)
		owned = append(owned, int32(number))
	}
	told.Rebalance(owned)
}
