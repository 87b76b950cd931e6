// gzip is its own; for the others it asks for packages, and has none for zstd that runs here.
import { compress, decompress, init } from '@bokuweb/zstd-wasm'
import kafkajs from 'kafkajs'
import LZ4 from 'kafkajs-lz4'
import Snappy from 'kafkajs-snappy'

const { CompressionCodecs, CompressionTypes } = kafkajs

export async function codec(name) {
  if (name === 'zstd') await init()
  CompressionCodecs[CompressionTypes.Snappy] = Snappy
  CompressionCodecs[CompressionTypes.LZ4] = new LZ4().codec
  CompressionCodecs[CompressionTypes.ZSTD] = () => ({
    compress: async encoder => Buffer.from(compress(encoder.buffer)),
    decompress: async buffer => Buffer.from(decompress(buffer))
  })
  const { None, GZIP, Snappy: snappy, LZ4: lz4, ZSTD } = CompressionTypes
  return { none: None, gzip: GZIP, snappy, lz4, zstd: ZSTD }[name]
}
