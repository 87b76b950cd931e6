package main

import (
	"sync"

	"evenkeel/compat/told"

	"github.com/IBM/sarama"
)

var codecs = map[string]sarama.CompressionCodec{
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

var acks = map[string]sarama.RequiredAcks{
	"0": sarama.NoResponse, "1": sarama.WaitForLocal, "all": sarama.WaitForAll,
}

func produce(asked told.Asked) {
	settings := config()
	settings.Producer.RequiredAcks = acks[asked.Acks]
	settings.Producer.Compression = codecs[asked.Codec]
	if asked.Idempotent {
		settings.Producer.Idempotent = true
		settings.Net.MaxOpenRequests = 1 // sarama asks for it
	}
	producer, err := sarama.NewAsyncProducer(asked.Bootstrap, settings)
	told.Must(err)
	var answers sync.WaitGroup
	answers.Go(func() {
		for one := range producer.Successes() {
			value, _ := one.Value.Encode()
			told.Acked(value, int(one.Partition), one.Offset)
		}
	})
	answers.Go(func() {
		for failed := range producer.Errors() {
			told.Error(failed)
		}
	})
	for value := range asked.Values() {
		producer.Input() <- &sarama.ProducerMessage{
			Topic: asked.Topic, Value: sarama.StringEncoder(value),
		}
	}
	producer.AsyncClose()
	answers.Wait()
}
