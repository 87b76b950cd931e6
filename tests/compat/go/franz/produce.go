package main

import (
	"context"

	"evenkeel/compat/told"

	"github.com/twmb/franz-go/pkg/kgo"
)

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

var acks = map[string]kgo.Acks{
	"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks(),
}

func produce(asked told.Asked) {
	options := []kgo.Opt{
		kgo.RequiredAcks(acks[asked.Acks]),
		kgo.ProducerBatchCompression(codecs[asked.Codec]),
	}
	if !asked.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	producer := client(asked, options...)
	defer producer.Close()
	for value := range asked.Values() {
		record := &kgo.Record{Topic: asked.Topic, Value: []byte(value)}
		producer.Produce(context.Background(), record, acked)
	}
	told.Must(producer.Flush(context.Background()))
}

func acked(record *kgo.Record, err error) {
	if err != nil {
		told.Error(err)
		return
	}
	told.Acked(record.Value, int(record.Partition), record.Offset)
}
