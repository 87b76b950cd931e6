package main

import (
	"evenkeel/compat/told"

	"github.com/IBM/sarama"
)

const setting = "retention.ms"

func admin(asked told.Asked) {
	topic, short, longer := asked.Topic, "1000", "2000"
	admin, err := sarama.NewClusterAdmin(asked.Bootstrap, config())
	told.Must(err)
	defer admin.Close()
	resource := sarama.ConfigResource{Type: sarama.TopicResource, Name: topic}
	retention := func() string {
		entries, err := admin.DescribeConfig(resource)
		if err != nil {
			return ""
		}
		for _, one := range entries {
			if one.Name == setting {
				return one.Value
			}
		}
		return ""
	}
	known := func() sarama.TopicDetail {
		listed, err := admin.ListTopics()
		told.Must(err)
		return listed[topic]
	}
	detail := &sarama.TopicDetail{
		NumPartitions: 2, ReplicationFactor: -1, ConfigEntries: map[string]*string{setting: &short},
	}
	told.Must(admin.CreateTopic(topic, detail, false))
	told.Step("created")
	told.Until(func() bool { return retention() == short })
	told.Step("retention.ms=1000")
	entry := sarama.IncrementalAlterConfigsEntry{
		Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &longer,
	}
	entries := map[string]sarama.IncrementalAlterConfigsEntry{setting: entry}
	told.Must(admin.IncrementalAlterConfig(sarama.TopicResource, topic, entries, false))
	told.Until(func() bool { return retention() == longer })
	told.Step("retention.ms=2000")
	told.Must(admin.CreatePartitions(topic, 5, nil, false))
	told.Until(func() bool { return known().NumPartitions == 5 })
	told.Step("partitions=5")
	told.Until(func() bool { return known().NumPartitions > 0 })
	told.Step("listed")
	told.Must(admin.DeleteTopic(topic))
	told.Until(func() bool { return known().NumPartitions == 0 })
	told.Step("deleted")
}
