// Times llama.cpp through node-llama-cpp: node llama_cpp.mjs MODEL THREADS PROMPT DECODE ROUNDS
// Prints [{prefill_s, decode_s, cpu_s}], a row a round; seconds for the prompt, seconds a token.
import {createRequire} from "node:module";
import {performance} from "node:perf_hooks";
import {pathToFileURL} from "node:url";

const require = createRequire(process.env.NODE_LLAMA_CPP + "/");
const entry = require.resolve("node-llama-cpp");
const {getLlama, LlamaLogLevel} = await import(pathToFileURL(entry).href);
const [, , path, threads, prompt, decode, rounds] = process.argv;
const llama = await getLlama({
    gpu: false, build: "never", logLevel: LlamaLogLevel.error, maxThreads: Number(threads)
});
const model = await llama.loadModel({modelPath: path, useMmap: false});
const context = await model.createContext({
    contextSize: 1024, batchSize: 512, threads: Number(threads), sequences: 1
});
const sequence = context.getSequence();
const tokens = Array.from({length: Number(prompt)}, (_, i) => 100 + i);
const rows = [];
for (let round = 0; round < Number(rounds); round++) {
    await sequence.clearHistory();
    const before = process.cpuUsage();
    const start = performance.now();
    let count = 0, first = 0, last = 0;
    for await (const token of sequence.evaluate(tokens, {temperature: 0})) {
        last = performance.now();
        if (count === 0) first = last;
        if (++count > Number(decode)) break;
    }
    const used = process.cpuUsage(before);
    rows.push({
        prefill_s: (first - start) / 1e3,
        decode_s: count > 1 ? (last - first) / 1e3 / (count - 1) : null,
        cpu_s: (used.user + used.system) / 1e6,
    });
}
console.log(JSON.stringify(rows));
process.exit(0);
