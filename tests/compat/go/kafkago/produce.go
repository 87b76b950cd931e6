package main

import (
	"context"
	"time"

	"evenkeel/compat/told"

	"github.com/segmentio/kafka-go"
)

var codecs = map[string]kafka.Compression{
	"none": 0, "gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
}

var acks = map[string]kafka.RequiredAcks{
	"0": kafka.RequireNone, "1": kafka.RequireOne, "all": kafka.RequireAll,
}

func produce(asked told.Asked) {
	producer := &kafka.Writer{
		Addr:         address(asked),
		Topic:        asked.Topic,
		RequiredAcks: acks[asked.Acks],
		Compression:  codecs[asked.Codec],
		BatchTimeout: 20 * time.Millisecond, // its default is a second
		Async:        true,
		Completion:   completed,
	}
	for value := range asked.Values() {
		message := kafka.Message{Value: []byte(value)}
		told.Must(producer.WriteMessages(context.Background(), message))
	}
	told.Must(producer.Close())
}

func completed(messages []kafka.Message, err error) {
	for _, one := range messages {
		if err != nil {
			told.Error(err)
		} else {
			told.Acked(one.Value, one.Partition, one.Offset)
		}
	}
}
