// The kernels' tests without Python, for a processor that is only emulated: products against sums in double, the bits of
// a row beside others and alone, on one thread and on two; passes of a small decoder against decoding token by token, and
// every set of instructions against the portable one. The arguments are the sets that must be there, best first.
// Prints a line for each and exits 1 if anything is missed.
#include <cmath>
#include <cstdio>
#include <random>
#include <string>

#include "api.h"

using namespace outdraft;

extern "C" {
const char* od_best_kernels();
const char* od_error();
int od_has_kernels(const char* name);
Model* od_model_new(const Shape* shape, int num_layers, int threads, const char* kernels);
Model* od_model_set_layer(Model* model, int index, const od_linear* parts, const od_norms* norms, int window, int turns);
Model* od_model_set_head(Model* model, const od_linear* head, const float* final_norm);
Model* od_model_run(Model* model, const Pass* pass);
Model* od_model_logits(Model* model, const float* hidden, int rows, int norm, float* out);
void od_model_free(Model* model);
Matrix* od_matrix_new(const od_linear* from);
void od_matrix_free(Matrix* matrix);
Matrix* od_matrix_multiply(Matrix* matrix, const float* x, int rows, float* out, int threads, const char* kernels);
double od_dot_work(int bits, std::int64_t turns, int threads, const char* kind);
}

static int missed = 0;
static std::mt19937 chance(7);

static void require(bool holds, const std::string& what) {
    if (!holds) std::printf("MISSED %s\n", what.c_str()), missed++;
}

static std::vector<float> normal(std::size_t count, float scale) {
    std::normal_distribution<float> draw(0, scale);
    std::vector<float> out(count);
    for (float& x : out) x = draw(chance);
    return out;
}
static std::uint16_t to_half(float x) {  // bfloat16, to nearest even
    std::uint32_t word;
    std::memcpy(&word, &x, 4);
    return std::uint16_t((word + 0x7fff + ((word >> 16) & 1)) >> 16);
}
static float from_half(std::uint16_t x) {
    const std::uint32_t word = std::uint32_t(x) << 16;
    float out;
    std::memcpy(&out, &word, 4);
    return out;
}

// A weight as it is handed over, and what its numbers mean.
struct Weight {
    od_linear told{};
    std::vector<std::uint16_t> halves;
    std::vector<std::uint8_t> bytes;
    std::vector<float> scales, bias, meant;  // meant [N, K]

    Weight(int bits, int group, int num_out, int num_in, bool biased = true) {
        std::uniform_int_distribution<int> whole(bits == 4 ? -8 : -128, bits == 4 ? 7 : 127), power(0, 3);
        const std::size_t count = std::size_t(num_out) * num_in;
        meant = normal(count, 1 / std::sqrt(float(num_in)));
        if (bits == 16)
            for (float& x : meant) halves.push_back(to_half(x)), x = from_half(halves.back());
        else {
            const int per_row = group ? num_in / group : 1;
            for (int i = 0; i < num_out * per_row; i++) scales.push_back(std::ldexp(1.0f, power(chance) - bits));  // exact halves
            bytes.resize(bits == 4 ? count / 2 : count);
            for (std::size_t i = 0; i < count; i++) {
                const int value = i % 37 ? whole(chance) : (bits == 4 ? -8 : -128);
                if (bits == 8) bytes[i] = std::uint8_t(value);
                else bytes[i / 2] |= std::uint8_t((value + 8) << (i % 2 ? 4 : 0));
                const std::size_t row = i / num_in, at = i % num_in;
                meant[i] = float(value) * scales[row * per_row + (group ? at / group : 0)];
            }
        }
        if (biased) bias = normal(num_out, 1);
        told = {bits, num_out, num_in, group, bits == 16 ? (const void*)halves.data() : (const void*)bytes.data(),
                scales.empty() ? nullptr : scales.data(), biased ? bias.data() : nullptr, nullptr, 0};
    }
};

// The product in double, with the activations as the matrix takes them: bf16, or bytes with a scale for each step.
static double expected(const Weight& w, const float* x, int n) {
    const od_linear& m = w.told;
    const int span = m.bits == 16 ? 1 : !m.group ? m.num_in : m.group % 128 ? 32 : 128;
    double total = w.bias.empty() ? 0 : w.bias[n];
    for (int first = 0; first < m.num_in; first += span) {
        float top = 0;
        for (int k = first; k < first + span; k++) top = std::max(top, std::fabs(x[k]));
        const float scale = top > 0 ? top / 127 : 1;
        for (int k = first; k < first + span; k++) {
            const float taken = m.bits == 16 ? from_half(to_half(x[k])) : scale * std::nearbyint(x[k] * (1 / scale));
            total += double(w.meant[std::size_t(n) * m.num_in + k]) * taken;
        }
    }
    return total;
}

static void check_products(const char* set, int bits, int group, int num_out, int num_in) {
    const std::string name = std::string(set) + ", " + std::to_string(bits) + " bits in groups of " + std::to_string(group) + ", " +
                             std::to_string(num_in) + " to " + std::to_string(num_out);
    constexpr int rows = 21;
    const Weight w(bits, group, num_out, num_in);
    Matrix* matrix = od_matrix_new(&w.told);
    require(matrix, name + ": " + od_error());
    if (!matrix) return;
    std::vector<float> x = normal(std::size_t(rows) * num_in, 1), alone(rows * num_out), out(rows * num_out);
    std::fill(x.begin(), x.begin() + num_in, 0.0f);
    x[num_in + 3] = 100;  // the others of its step round to little
    double off = 0, size = 0;
    for (int r = 0; r < rows; r++) {
        od_matrix_multiply(matrix, &x[std::size_t(r) * num_in], 1, &alone[std::size_t(r) * num_out], 1, set);
        for (int n = 0; n < num_out; n++) {
            const double right = expected(w, &x[std::size_t(r) * num_in], n);
            off = std::max(off, std::fabs(alone[std::size_t(r) * num_out + n] - right)), size = std::max(size, std::fabs(right));
        }
    }
    require(off < 2e-6 * size, name + ": off by " + std::to_string(off / size));
    for (int count = 1; count <= rows; count++)
        for (int threads = 1; threads <= 2; threads++) {
            od_matrix_multiply(matrix, x.data(), count, out.data(), threads, set);
            require(!std::memcmp(out.data(), alone.data(), sizeof(float) * count * num_out),
                    name + ": other bits in " + std::to_string(count) + " rows on " + std::to_string(threads) + " threads");
        }
    od_matrix_free(matrix);
}

// A decoder of two layers with every kind of weight, and a cache of its own.
struct Decoder {
    static constexpr int layers = 2, rows = 37, vocab = 96, kv_heads = 2;
    Shape shape{};
    Model* model = nullptr;
    std::vector<float> cos, sin;
    std::vector<std::int32_t> positions, pages, order{0, 1};
    std::vector<std::uint8_t> keys, values;
    std::vector<float> key_scales, value_scales;
    Memory memory{};

    Decoder(const char* set, int bits, int group, int head_dim, bool bytes, float cap) {
        chance.seed(11);  // the same weights for every set
        shape.hidden = 128, shape.heads = 4, shape.kv_heads = kv_heads, shape.head_dim = head_dim, shape.inner = 160;
        if (group == 128) shape.inner = 256;
        shape.vocab = vocab, shape.rotary = head_dim, shape.eps = 1e-5f, shape.scale = 1 / std::sqrt(float(head_dim));
        shape.score_cap = cap;
        model = od_model_new(&shape, layers, 2, set);
        const std::vector<float> norm = normal(4 * shape.hidden, 1);
        for (int i = 0; i < layers; i++) {
            std::vector<Weight> parts;
            for (const Size& size : layer_sizes(shape)) parts.emplace_back(bits, group, size.num_out, size.num_in);
            const od_linear told[4] = {parts[0].told, parts[1].told, parts[2].told, parts[3].told};
            const od_norms norms{norm.data(), norm.data() + shape.hidden, nullptr, nullptr, norm.data(), norm.data() + head_dim};
            require(od_model_set_layer(model, i, told, &norms, i ? 24 : 0, 0), od_error());
        }
        const Weight head(bits, group, vocab, shape.hidden, false);
        require(od_model_set_head(model, &head.told, norm.data()), od_error());
        const int half = head_dim / 2;
        for (int t = 0; t < 64; t++)
            for (int i = 0; i < head_dim; i++) {
                const float angle = t * std::pow(10000.0f, -float(i % half) / half);
                cos.push_back(std::cos(angle)), sin.push_back(i < half ? -std::sin(angle) : std::sin(angle));
            }
        for (int i = 0; i < 64; i++) positions.push_back(i);
        for (int i = 0; i < 4; i++) pages.push_back(3 - i);  // in no order
        const std::size_t slots = std::size_t(layers) * kv_heads * 64;
        keys.resize(slots * head_dim * 2), values.resize(slots * head_dim * 2), key_scales.resize(slots), value_scales.resize(slots);
        memory = {keys.data(), values.data(), bytes ? key_scales.data() : nullptr, bytes ? value_scales.data() : nullptr,
                  pages.data(), kv_heads * 64, kv_heads * kPage, kPage};
    }
    ~Decoder() { od_model_free(model); }

    // Rows [start, start + count) of the text behind those before them.
    void pass(float* hidden, int start, int count, const std::int32_t* ends = nullptr, const std::int32_t* path = nullptr) {
        const Span span{0, count, start, start, memory, ends, path};
        Pass told{};
        told.hidden = hidden, told.positions = positions.data() + start, told.cos = cos.data(), told.sin = sin.data();
        told.rows = count, told.spans = &span, told.num_spans = 1, told.layers = order.data(), told.num_layers = layers;
        require(od_model_run(model, &told), od_error());
    }
    std::vector<float> logits(const std::vector<float>& hidden) {
        std::vector<float> out(hidden.size() / shape.hidden * vocab);
        require(od_model_logits(model, hidden.data(), int(hidden.size()) / shape.hidden, 1, out.data()), od_error());
        return out;
    }
};

static std::vector<float> check_passes(const char* set, int bits, int group, int head_dim, bool bytes, float cap) {
    const std::string name = std::string(set) + ", passes with " + std::to_string(bits) + " bits, heads of " + std::to_string(head_dim) +
                             (bytes ? ", a cache of bytes" : "") + (cap > 0 ? ", capped scores" : "");
    Decoder decoder(set, bits, group, head_dim, bytes, cap);
    const int width = decoder.shape.hidden, rows = Decoder::rows;
    chance.seed(5);
    const std::vector<float> text = normal(std::size_t(rows) * width, 1);
    std::vector<float> singly = text, whole = text, parts = text;
    for (int r = 0; r < rows; r++) decoder.pass(&singly[std::size_t(r) * width], r, 1);
    const std::vector<float> right = decoder.logits(singly);
    decoder.pass(whole.data(), 0, rows);
    require(decoder.logits(whole) == right, name + ": a chain has other bits than its tokens one by one");
    for (int r = 0; r < rows;) {
        const int count = std::min(1 + r % 10, rows - r);
        decoder.pass(&parts[std::size_t(r) * width], r, count);
        r += count;
    }
    require(decoder.logits(parts) == right, name + ": passes of several sizes have other bits");
    // A tree behind 30 rows: row 30 and 31 are its trunk, another child of the trunk stands in the last row.
    std::vector<float> tree(text.begin() + std::size_t(30) * width, text.begin() + std::size_t(33) * width), branch = tree;
    const std::int32_t ends[] = {1, 3, 5}, path[] = {0, 0, 1, 0, 2}, place[] = {30, 31, 31};
    decoder.positions.assign(place, place + 3), decoder.positions.insert(decoder.positions.begin(), 30, 0);
    decoder.pass(tree.data(), 30, 3, ends, path);
    require(std::equal(tree.begin(), tree.begin() + 2 * width, singly.begin() + std::size_t(30) * width),
            name + ": a path of a tree has other bits than the text");
    require(!std::equal(tree.begin() + 2 * width, tree.end(), singly.begin() + std::size_t(32) * width),
            name + ": a branch sees what is no part of it");
    return right;
}

int main(int count, char** sets) {
    require(count > 1 && od_best_kernels() == std::string(sets[1]), std::string("the best set is ") + od_best_kernels());
    const int kinds[][2] = {{16, 0}, {8, 0}, {8, 32}, {8, 64}, {8, 128}, {4, 32}, {4, 64}, {4, 128}};
    std::vector<std::vector<float>> first;
    for (int s = 1; s < count; s++) {
        const char* set = sets[s];
        require(od_has_kernels(set), std::string(set) + " is not there");
        if (!od_has_kernels(set)) continue;
        chance.seed(3);
        for (const auto& [bits, group] : kinds)
            for (const auto& [num_out, num_in] : {std::pair{64, 128}, {200, 384}, {1, 1024}, {97, 256}})
                check_products(set, bits, group, num_out, num_in);
        std::vector<std::vector<float>> logits;
        for (const auto& [bits, group] : kinds)
            if (group % 64 || group == 128)
                if (group != 128)
                    for (const bool bytes : {false, true})
                        logits.push_back(check_passes(set, bits, group, bytes ? 96 : 64, bytes, bits == 4 ? 30.0f : 0.0f));
        if (s == 1) first = logits;
        double off = 0, size = 0;
        for (std::size_t i = 0; i < logits.size(); i++)
            for (std::size_t j = 0; j < logits[i].size(); j++) {
                off = std::max(off, double(std::fabs(logits[i][j] - first[i][j]))), size = std::max(size, double(std::fabs(first[i][j])));
                require(std::isfinite(logits[i][j]), std::string(set) + ": a logit is no number");
            }
        require(off < 0.05 * size, std::string(set) + ": logits are far from those of " + sets[1]);
        require(od_dot_work(16, 10, 1, set) > 0 && od_dot_work(8, 10, 1, set) > 0, std::string(set) + ": no peak");
        std::printf("%s: products and passes checked, logits within %.1e of those of %s\n", set, off / size, sets[1]);
    }
    if (missed) std::printf("%d missed\n", missed);
    return missed != 0;
}
