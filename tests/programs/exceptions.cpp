/* Exceptions through frames with and without clean-up, thrown again, of other types, out of virtual calls. */
#include "program.h"

#include <memory>
#include <stdexcept>
#include <string>

namespace {

volatile unsigned sum;

struct Shape {
    virtual ~Shape() = default;
    virtual unsigned area(unsigned n) const = 0;
};

struct Square : Shape {
    unsigned area(unsigned n) const override
    {
        if (n % 7 == 0)
            throw std::runtime_error("seven " + std::to_string(n));
        return n * n;
    }
};

struct Line : Shape {
    unsigned area(unsigned n) const override
    {
        if (n % 5 == 0)
            throw n;
        return 0;
    }
};

__attribute__((noinline)) unsigned deep(const Shape &shape, unsigned n, unsigned depth)
{
    std::string kept(depth, 'x');
    if (!depth)
        return shape.area(n);
    return deep(shape, n, depth - 1) + static_cast<unsigned>(kept.size());
}

unsigned again(const Shape &shape, unsigned n)
{
    try {
        return deep(shape, n, n % 90);
    } catch (const std::exception &) {
        if (n % 2)
            throw;
        throw std::logic_error("even");
    }
}

} // namespace

void throw_and_catch()
{
    const std::unique_ptr<Shape> shapes[] = {std::make_unique<Square>(), std::make_unique<Line>()};
    for (unsigned n = 0; n < 100; n++) {
        try {
            sum += again(*shapes[n % 2], n);
        } catch (unsigned thrown) {
            sum += thrown;
        } catch (const std::logic_error &) {
            sum++;
        } catch (...) {
            sum--;
        }
    }
}
